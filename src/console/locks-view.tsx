import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { afterPrefix } from '../bytes/key-range.js'
import type { LockInfo, TxnStatus, Wait } from './answers.js'
import { Empty, Failure, KeyText, Panel, Scroll, Ts } from './parts.js'
import { PER_MS, readableMs } from './readable-time.js'
import { addressOf } from './route.js'
import { Refused, type Server } from './server.js'
import { useSession } from './session.js'
import { useLoaded } from './use-loaded.js'
import { WaitGraph } from './wait-graph.js'
import { idOf, jsonBytes, type WireBytes, wireOf } from './wire-bytes.js'

const EVERY_MS = 1000
const LOCKS_MAX = 500
const WAITS_MAX = 500
const KEYS_SHOWN = 4

/** The locks of one transaction. */
interface Holder {
  readonly startTs: number
  readonly locks: readonly LockInfo[]
  readonly ttlMs: number
  readonly ageMs: number
}

interface Locks {
  readonly holders: readonly Holder[]
  readonly isCut: boolean
  /** undefined: the token may not ask. */
  readonly waits: readonly Wait[] | undefined
}

async function loadLocks(
  server: Server,
  prefixes: readonly WireBytes[] | undefined,
  signal: AbortSignal,
): Promise<Locks> {
  const ranges = prefixes?.map((prefix) => {
    const end = afterPrefix(jsonBytes(prefix))
    return { start: prefix, ...(end && { end: wireOf(end) }) }
  }) ?? [{}]
  const answers = await Promise.all(
    ranges.map((range) =>
      server.percolator<{ locks: LockInfo[] }>(
        'scan_lock',
        { max_ts: Number.MAX_SAFE_INTEGER, limit: LOCKS_MAX, ...range },
        signal,
      ),
    ),
  )
  const { now } = await server.percolator<{ now: number }>('tso', {}, signal)
  const waits = await server.percolator<{ entries: Wait[] }>('get_lock_wait_info', { limit: WAITS_MAX }, signal).then(
    ({ entries }) => entries,
    (error: unknown) => {
      if (error instanceof Refused && error.status === 403) return undefined
      throw error
    },
  )
  const locks = answers.flatMap((answer) => answer.locks)
  const byTxn = new Map<number, LockInfo[]>()
  for (const lock of locks) byTxn.set(lock.start_ts, [...(byTxn.get(lock.start_ts) ?? []), lock])
  const holders = [...byTxn].map(([startTs, own]) => ({
    startTs,
    locks: own,
    ttlMs: Math.max(...own.map(({ ttl }) => ttl)),
    ageMs: Math.max(0, (now - startTs) / PER_MS),
  }))
  return {
    holders: holders.sort((a, b) => a.startTs - b.startTs),
    isCut: answers.some((answer) => answer.locks.length === LOCKS_MAX),
    waits,
  }
}

export function LocksView(): JSX.Element {
  const { server, access } = useSession()
  const loaded = useLoaded((signal) => loadLocks(server, access.prefixes, signal), [server], EVERY_MS)
  const [said, say] = useState('')
  const { holders = [], isCut = false, waits } = loaded.value ?? {}

  const resolve = async ({ startTs, locks }: Holder): Promise<void> => {
    const [first] = locks
    if (first === undefined) return
    const { now } = await server.percolator<{ now: number }>('tso', {})
    const asked = { primary: first.primary, lock_ts: startTs, caller_start_ts: 0, current_ts: now }
    const isPessimistic = first.type === 'pessimistic'
    const status = await server.percolator<TxnStatus>('check_txn_status', {
      ...{ ...asked, rollback_if_not_exist: true, ...(isPessimistic && { resolving_pessimistic_lock: true }) },
    })
    if (status.status === 'locked') return say('Its owner may be alive: its time is not over.')
    const commitTs = status.status === 'committed' ? status.commit_ts : 0
    const keys = locks.map(({ key }) => key)
    if (isPessimistic && commitTs === 0)
      await server.percolator('pessimistic_rollback', { keys, start_ts: startTs, for_update_ts: first.for_update_ts })
    else await server.percolator('resolve_lock', { start_ts: startTs, commit_ts: commitTs, keys })
    say(
      commitTs === 0
        ? 'The transaction was rolled back.'
        : `The transaction is committed at ${commitTs}: its keys are, too.`,
    )
    loaded.reload()
  }

  return (
    <>
      <header class="view-head">
        <h1>Locks</h1>
        <p class="lead">
          A transaction holds a lock on each key from its prewrite to its commit, or, in a pessimistic one, from the
          moment it asks for the key. Expired ones are ended by whoever meets them, and by the server.
        </p>
      </header>
      <Failure error={loaded.error} />
      <p role="status" class="said">
        {said}
      </p>
      <Panel title="Waits" aside={<span class="quiet">an arrow leads from who waits to who holds the lock</span>}>
        {waits === undefined ? (
          <Empty>{loaded.value === undefined ? 'Loading…' : 'Waits are for tokens without prefixes.'}</Empty>
        ) : (
          <WaitGraph waits={waits} />
        )}
      </Panel>
      <Panel
        title="Transactions that hold locks"
        aside={isCut && <span class="quiet">the first {LOCKS_MAX} locks</span>}
      >
        {holders.length === 0 ? (
          <Empty>{loaded.value === undefined ? 'Loading…' : 'Nobody holds a lock.'}</Empty>
        ) : (
          <Scroll label="Transactions that hold locks">
            <table>
              <thead>
                <tr>
                  <th scope="col">began</th>
                  <th scope="col">primary</th>
                  <th scope="col">locked keys</th>
                  <th scope="col">kind</th>
                  <th scope="col">time left</th>
                  {access.may_write && <th scope="col">end it</th>}
                </tr>
              </thead>
              <tbody>
                {holders.map((holder) => (
                  <HolderLine
                    key={holder.startTs}
                    holder={holder}
                    resolve={access.may_write ? resolve : undefined}
                    onError={(error) => say(String(error))}
                  />
                ))}
              </tbody>
            </table>
          </Scroll>
        )}
      </Panel>
    </>
  )
}

function HolderLine(props: {
  readonly holder: Holder
  readonly resolve: ((holder: Holder) => Promise<void>) | undefined
  readonly onError: (error: unknown) => void
}): JSX.Element {
  const { holder, resolve, onError } = props
  const { startTs, locks, ttlMs, ageMs } = holder
  const isOver = ageMs >= ttlMs
  const kinds = [...new Set(locks.map(({ type, use_async_commit }) => (use_async_commit ? `${type}, async` : type)))]
  return (
    <tr>
      <th scope="row">
        <Ts ts={startTs} />
      </th>
      <td>{locks[0] && <KeyText of={locks[0].primary} />}</td>
      <td>
        {locks.slice(0, KEYS_SHOWN).map(({ key }) => (
          <a key={idOf(key)} class="item" href={addressOf('key', key)}>
            <KeyText of={key} />
          </a>
        ))}
        {locks.length > KEYS_SHOWN && <span class="quiet">and {locks.length - KEYS_SHOWN} more</span>}
      </td>
      <td>{kinds.join(', ')}</td>
      <td class="nowrap">{isOver ? <span class="badge bad">expired</span> : readableMs(ttlMs - ageMs)}</td>
      {resolve !== undefined && (
        <td>
          {isOver && (
            <button type="button" class="small" onClick={() => resolve(holder).catch(onError)}>
              Resolve
            </button>
          )}
        </td>
      )}
    </tr>
  )
}
