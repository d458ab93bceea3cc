import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { LockInfo, TxnStatus } from './answers.js'
import type { CallLog } from './call-log.js'
import { KeyText, Panel, Ts } from './parts.js'
import { readableMs } from './readable-time.js'
import { isAbort, Refused, reasonOf } from './server.js'
import { useSession } from './session.js'
import { idOf, preview, type WireBytes } from './wire-bytes.js'

/** The result of a read of one key at a timestamp. */
type Found = { readonly value: WireBytes | undefined } | { readonly lock: LockInfo } | { readonly error: string }

interface Reading {
  readonly ts: number
  readonly found: readonly (readonly [WireBytes, Found])[]
}

interface Props {
  readonly keys: readonly WireBytes[]
  readonly log: CallLog
  readonly onChange: () => void
}

/** Another client, which reads the keys and cleans up after a dead coordinator. */
export function ReaderPanel({ keys, log, onChange }: Props): JSX.Element {
  const { server } = useSession()
  const [reading, setReading] = useState<Reading>()
  const [said, say] = useState('')

  const get = async (key: WireBytes, ts: number): Promise<Found> => {
    try {
      const { found, value } = await log.send<{ found: boolean; value?: WireBytes }>(server, 'reader', 'get', {
        key,
        ts,
      })
      return { value: found ? (value ?? '') : undefined }
    } catch (error) {
      const { lock } = error instanceof Refused ? (error.problem as { readonly lock?: LockInfo }) : {}
      return lock === undefined ? { error: reasonOf(error) } : { lock }
    }
  }
  const readAt = async (ts: number): Promise<void> => {
    const found: (readonly [WireBytes, Found])[] = []
    for (const key of keys) found.push([key, await get(key, ts)])
    setReading({ ts, found })
  }
  const read = async (): Promise<void> => {
    say('')
    await readAt((await log.send<{ ts: number }>(server, 'reader', 'tso', {})).ts)
  }
  const resolve = async (key: WireBytes, lock: LockInfo, ts: number): Promise<void> => {
    const { now } = await log.send<{ now: number }>(server, 'reader', 'tso', {})
    const asked = { primary: lock.primary, lock_ts: lock.start_ts, caller_start_ts: ts, current_ts: now }
    const status = await log.send<TxnStatus>(server, 'reader', 'check_txn_status', {
      ...asked,
      rollback_if_not_exist: true,
    })
    if (status.status === 'locked') {
      const leftMs = lock.ttl - (now - lock.start_ts) / 2048
      say(
        `The primary is locked and its owner may be alive: the reader waits, for up to ${readableMs(Math.max(0, leftMs))}.`,
      )
    } else {
      const isCommitted = status.status === 'committed'
      say(
        isCommitted
          ? 'The primary is committed, so the transaction is. The reader rolls the key forward.'
          : 'The primary is rolled back, so nothing of the transaction may stay. The reader removes the lock.',
      )
      const fate = { start_ts: lock.start_ts, commit_ts: isCommitted ? status.commit_ts : 0 }
      await log.send(server, 'reader', 'resolve_lock', { ...fate, keys: [key] })
      await readAt(ts)
    }
    onChange()
  }
  const run = (action: () => Promise<void>) => (): void => {
    action().catch((error: unknown) => {
      if (!isAbort(error)) say(reasonOf(error))
    })
  }

  return (
    <Panel
      title="A reader"
      aside={
        <button type="button" onClick={run(read)} disabled={keys.length === 0}>
          Read at a new timestamp
        </button>
      }
    >
      {reading === undefined ? (
        <p class="quiet">Reads the keys of the transaction at a timestamp of its own, as any other client would.</p>
      ) : (
        <>
          <p>
            at <Ts ts={reading.ts} isExact />
          </p>
          <ul class="readings">
            {reading.found.map(([key, found]) => (
              <li key={idOf(key)}>
                <KeyText of={key} />
                {'value' in found &&
                  (found.value === undefined ? (
                    <span class="quiet">absent</span>
                  ) : (
                    <bdi class="bytes found">{preview(found.value, 60)}</bdi>
                  ))}
                {'error' in found && <span class="failure">{found.error}</span>}
                {'lock' in found && (
                  <>
                    <span class="badge locked">locked</span>
                    <button type="button" class="small" onClick={run(() => resolve(key, found.lock, reading.ts))}>
                      Resolve the lock
                    </button>
                  </>
                )}
              </li>
            ))}
          </ul>
        </>
      )}
      <p role="status" class="said">
        {said}
      </p>
    </Panel>
  )
}
