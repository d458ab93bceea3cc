import { UsageError } from '../../server/flags.js'
import { nameArgument } from './arguments.js'
import { clientCommand } from './client-command.js'
import { shown, shownText } from './shown.js'

export const observers = clientCommand({
  operands: ['[NAME]'],
  flags: { parked: { help: 'the keys of observer NAME that have failed too often', variable: false } },
  about: 'Prints the observers with their queues, or one of them, or its parked keys.',
  example: `$ perkv observers | jq -c '.observers[] | [.name, .pending, .parked]'
["words",12,0]`,

  async run({ db, flags, screen }) {
    const name = nameArgument('observer', flags.positionals[0])
    if (flags.isSet('parked')) {
      if (name === undefined) throw new UsageError('--parked needs the NAME of an observer')
      const table = screen.table(['key', 'commit_ts', 'attempts', 'parked_at', 'error'])
      for await (const parked of db.observers.parked(name, { as: 'bytes' })) {
        const { key, commitTs, attempts, parkedAt, error } = parked
        if (screen.form === 'lines') await screen.line(parked)
        else
          await screen.write(
            table.add([shown(key), String(commitTs), String(attempts), parkedAt.toISOString(), shownText(error ?? '')]),
          )
      }
      if (screen.form === 'table') await screen.write(table.end())
      return undefined
    }
    const one = name === undefined ? undefined : await db.observers.get(name, { as: 'bytes' })
    const states = one === undefined ? await db.observers.list({ as: 'bytes' }) : [one]
    if (screen.form === 'lines') {
      await screen.line(one ?? { observers: states })
      return undefined
    }
    const table = screen.table([
      'name',
      'state',
      'pending',
      'claimed',
      'delayed',
      'parked',
      'lag_ms',
      'workers',
      'range',
    ])
    for (const { name, state, pending, claimed, delayed, parked, lagMs, workers, ...range } of states) {
      const numbers = [pending, claimed, delayed, parked, Math.round(lagMs), workers.length].map(String)
      await screen.write(table.add([name, state, ...numbers, rangeText(range)]))
    }
    if (screen.form === 'table') await screen.write(table.end())
    return undefined
  },
})

function rangeText({ prefix, start, end }: { prefix?: Uint8Array; start?: Uint8Array; end?: Uint8Array }): string {
  if (prefix !== undefined) return `${shown(prefix)}*`
  return `${start === undefined ? '' : shown(start)} up to ${end === undefined ? 'the end' : shown(end)}`
}
