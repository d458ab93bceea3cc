import { integer, UsageError } from '../../server/flags.js'
import { nameArgument, onlyOne } from './arguments.js'
import { clientCommand } from './client-command.js'
import { rangeText } from './shown.js'
import { timeOf } from './time-of.js'

export const consumers = clientCommand({
  operands: ['[NAME]'],
  flags: {
    reset: { help: 'sets the position of NAME: to --since, or to now', variable: false },
    since: { value: 'TS', help: 'with --reset: everything after it comes again', variable: false },
    delete: { help: 'deletes NAME with its position', variable: false },
  },
  about: `Prints the consumers of the change feed with their positions, or one of them. Resets one that was lost, or is to receive changes
again; deletes one that is gone for good, so that it keeps no old versions from collection.`,
  example: `$ perkv consumers | jq -c '[.name, .lag_ms, .is_lost]'
["search-index",12,false]
$ perkv consumers search-index --reset --since 3677245337305088`,

  async run({ db, flags, screen }) {
    const name = nameArgument('consumer', flags.positionals[0])
    const action = onlyOne(flags, ['reset', 'delete'])
    const since = flags.optional('since')
    if (since !== undefined && action !== 'reset') throw new UsageError('--since goes with --reset')
    if (action !== undefined && name === undefined) throw new UsageError(`--${action} needs the NAME of a consumer`)
    if (name !== undefined && action === 'delete') {
      await db.consumers.delete(name)
      return screen.answer({ deleted: name })
    }
    const states =
      name === undefined
        ? await db.consumers.list({ as: 'bytes' })
        : action === undefined
          ? [await db.consumers.get(name, { as: 'bytes' })]
          : [
              await db.consumers.reset(name, {
                as: 'bytes',
                sinceTs: since && integer(since, 0, Number.MAX_SAFE_INTEGER),
              }),
            ]
    await screen.list(
      states,
      ['name', 'position', 'time', 'lag_ms', 'hold_ms', 'is_lost', 'range'],
      ({ name, position, lagMs, holdMs, isLost, ...range }) => [
        name,
        String(position),
        position === 0 ? '' : timeOf(position),
        String(lagMs),
        String(holdMs),
        isLost ? { text: 'true', colour: 'red' } : 'false',
        rangeText(range),
      ],
    )
    return undefined
  },
})
