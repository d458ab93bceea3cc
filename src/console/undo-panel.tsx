import type { JSX } from 'preact'
import type { Pair, Version } from './answers.js'
import { type Change, kindOf } from './key-diff.js'
import { Empty, Failure, Panel } from './parts.js'
import { type DiffRequest, diffSlicesOf } from './prefix-diff.js'
import { readKeys } from './read-past-locks.js'
import { timeOf } from './readable-time.js'
import { type Restoration, restoredRoom } from './restore.js'
import { RestorePanel } from './restore-panel.js'
import type { Server } from './server.js'
import { useSession } from './session.js'
import { useLoaded } from './use-loaded.js'
import { idOf, shown } from './wire-bytes.js'

const VALUES_AT_ONCE = 50

/** @param chosen undefined: all of the diff. */
async function loadRestorations(
  server: Server,
  asked: DiffRequest,
  chosen: readonly Change[] | undefined,
  signal: AbortSignal,
): Promise<readonly Restoration[]> {
  const room = restoredRoom()
  const restorations: Restoration[] = []
  const add = async (changes: readonly Change[]): Promise<void> => {
    for (let i = 0; i < changes.length; i += VALUES_AT_ONCE) {
      const some = changes.slice(i, i + VALUES_AT_ONCE)
      const old = some.flatMap(({ key, before }) => (before === undefined ? [] : [key]))
      const pairs = new Map((await readKeys(server, old, asked.from, signal)).map((pair) => [idOf(pair.key), pair]))
      for (const { key, before, after } of some) {
        const pair = pairs.get(idOf(key))
        if (pair?.commit_ts !== before?.commit_ts)
          throw new Error(`The version of then of ${shown(key)} has changed meanwhile: compare again.`)
        room.take(key, pair?.value)
        restorations.push({ key, target: pair && versionOf(pair), present: after && versionOf(after) })
      }
    }
  }
  if (chosen !== undefined) await add(chosen)
  else
    for await (const { changes } of diffSlicesOf(server, asked, signal))
      await add(changes.filter((change) => kindOf(change, asked.to) !== 'expired'))
  return restorations
}

function versionOf({ value = '', commit_ts, expire_ts, lease_fence }: Pair): Version {
  return { value, commitTs: commit_ts, expireTs: expire_ts, leaseFence: lease_fence }
}

/** Prepares the undo of changes, shows it, and does it when told to. */
export function UndoPanel(props: {
  readonly asked: DiffRequest
  /** undefined: all of the diff. */
  readonly chosen: readonly Change[] | undefined
  readonly onDone: () => void
  readonly onCancel: () => void
}): JSX.Element {
  const { asked, chosen, onDone, onCancel } = props
  const { server } = useSession()
  const loaded = useLoaded((signal) => loadRestorations(server, asked, chosen, signal), [server, asked, chosen])
  const title = `Undo, back to ${timeOf(asked.from) ?? asked.from}`
  if (loaded.value !== undefined)
    return (
      <RestorePanel
        title={title}
        {...(chosen === undefined && {
          note: 'Keys that may have expired by themselves stay gone: select them to restore them.',
        })}
        restorations={loaded.value}
        onDone={onDone}
        onCancel={onCancel}
      />
    )
  return (
    <Panel title={title}>
      {loaded.error === undefined && <Empty>Reading the values of then…</Empty>}
      <Failure error={loaded.error} />
      <p class="bar">
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
      </p>
    </Panel>
  )
}
