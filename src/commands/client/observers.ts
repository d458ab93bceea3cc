import type { ObserverState } from '../../client/index.js'
import { UsageError } from '../../server/flags.js'
import { argumentBytes, BASE64_FLAG, nameArgument, onlyOne } from './arguments.js'
import { clientCommand } from './client-command.js'
import type { Screen } from './screen.js'
import { rangeText, shown, shownText } from './shown.js'

export const observers = clientCommand({
  operands: ['[NAME]', '[KEY...]'],
  flags: {
    parked: { help: 'the keys of observer NAME that have failed too often', variable: false },
    retry: { help: 'runs parked keys again: each KEY, or all', variable: false },
    skip: { help: 'drops the changes of each parked KEY', variable: false },
    pause: { help: 'no key is given to workers until --resume', variable: false },
    resume: { help: 'ends a pause', variable: false },
    ...BASE64_FLAG,
  },
  about: `Prints the observers with their queues, or one of them, or its parked keys. Moves one on that is stuck: its parked keys are run again,
or passed over.`,
  example: `$ perkv observers | jq -c '[.name, .pending, .parked]'
["words",12,1]
$ perkv observers words --retry doc/7
{"retried":1}`,

  async run({ db, flags, screen }) {
    const [first, ...texts] = flags.positionals
    const name = nameArgument('observer', first)
    const action = onlyOne(flags, ['parked', 'retry', 'skip', 'pause', 'resume'])
    if (action !== undefined && name === undefined) throw new UsageError(`--${action} needs the NAME of an observer`)
    const keys = texts.map((text) => argumentBytes({ text, from: 'KEY' }, flags))
    if (keys.length > 0 && action !== 'retry' && action !== 'skip')
      throw new UsageError('a KEY goes with --retry or --skip')
    if (action === 'skip' && keys.length === 0) throw new UsageError('--skip needs each KEY: --parked lists them')
    if (name === undefined) return printStates(screen, await db.observers.list({ as: 'bytes' }))
    if (action === 'parked') {
      await screen.list(
        db.observers.parked(name, { as: 'bytes' }),
        ['key', 'commit_ts', 'attempts', 'parked_at', 'error'],
        ({ key, commitTs, attempts, parkedAt, error }) => {
          return [shown(key), String(commitTs), String(attempts), parkedAt.toISOString(), shownText(error ?? '')]
        },
      )
      return undefined
    }
    if (action === 'retry')
      return screen.answer({ retried: await db.observers.retry(name, keys.length === 0 ? undefined : keys) })
    if (action === 'skip') return screen.answer({ skipped: await db.observers.skip(name, keys) })
    if (action !== undefined) await db.observers[action](name)
    return printStates(screen, [await db.observers.get(name, { as: 'bytes' })])
  },
})

async function printStates(screen: Screen, states: readonly ObserverState<'bytes'>[]): Promise<undefined> {
  await screen.list(
    states,
    ['name', 'state', 'pending', 'claimed', 'delayed', 'parked', 'lag_ms', 'workers', 'range'],
    ({ name, state, pending, claimed, delayed, parked, lagMs, workers, ...range }) => [
      name,
      state === 'paused' ? { text: state, colour: 'yellow' } : state,
      ...[pending, claimed, delayed].map(String),
      parked > 0 ? { text: String(parked), colour: 'red' } : '0',
      ...[Math.round(lagMs), workers.length].map(String),
      rangeText(range),
    ],
  )
}
