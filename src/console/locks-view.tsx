import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { afterPrefix } from '../bytes/key-range.js'
import type { LockInfo, Wait } from './answers.js'
import { ConfirmedButton } from './confirmed-button.js'
import { forceEnd, type Holder, isHidden, resolve } from './end-transaction.js'
import { Empty, Failure, KeyText, Panel, Ts } from './parts.js'
import { PER_MS, readableMs } from './readable-time.js'
import { addressOf } from './route.js'
import { Refused, reasonOf, type Server } from './server.js'
import { useSession } from './session.js'
import { useLoaded } from './use-loaded.js'
import { WaitGraph } from './wait-graph.js'
import { idOf, jsonBytes, preview, type WireBytes, wireOf } from './wire-bytes.js'

const EVERY_MS = 1000
const LOCKS_MAX = 500
const WAITS_MAX = 500
const KEYS_SHOWN = 4

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
    leftMs: Math.max(...own.map(({ ttl }) => ttl)) - Math.max(0, (now - startTs) / PER_MS),
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

  const end = (ending: Promise<string>): void => {
    ending.then(say, (error: unknown) => say(reasonOf(error))).finally(loaded.reload)
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
          <ul class="entries" aria-label="Transactions that hold locks">
            {holders.map((holder) => (
              <HolderLine key={holder.startTs} holder={holder} isCut={isCut} end={end} />
            ))}
          </ul>
        )}
      </Panel>
    </>
  )
}

function HolderLine(props: {
  readonly holder: Holder
  readonly isCut: boolean
  readonly end: (ending: Promise<string>) => void
}): JSX.Element {
  const { holder, isCut, end } = props
  const { server, access } = useSession()
  const { startTs, locks, leftMs } = holder
  const isOver = leftMs <= 0
  const kinds = [...new Set(locks.map(({ type, use_async_commit }) => (use_async_commit ? `${type}, async` : type)))]
  return (
    <li class="entry">
      <h3 class="entry-name">
        <Ts ts={startTs} />
      </h3>
      <dl class="numbers">
        <div>
          <dt>primary</dt>
          <dd>
            {isHidden(holder) ? <span class="quiet">beyond this token</span> : <KeyText of={locks[0]?.primary ?? ''} />}
          </dd>
        </div>
        <div>
          <dt>locked keys</dt>
          <dd>
            {locks.slice(0, KEYS_SHOWN).map(({ key }) => (
              <a key={idOf(key)} class="item" href={addressOf('key', key)}>
                <KeyText of={key} />
              </a>
            ))}
            {locks.length > KEYS_SHOWN && <span class="quiet">and {locks.length - KEYS_SHOWN} more</span>}
          </dd>
        </div>
        <div>
          <dt>kind</dt>
          <dd>{kinds.join('; ')}</dd>
        </div>
        <div>
          <dt>time left</dt>
          <dd class="nowrap">{isOver ? <span class="badge bad">expired</span> : readableMs(leftMs)}</dd>
        </div>
      </dl>
      {access.may_write && (
        <div class="bar">
          {isHidden(holder) ? (
            <span class="quiet">Its primary decides, which this token does not reach.</span>
          ) : isOver ? (
            <button type="button" class="small" onClick={() => end(resolve(server, holder))}>
              Resolve
            </button>
          ) : (
            <ConfirmedButton
              label="Force its end"
              question={`End the transaction of ${startTs}, which locks ${namesOf(holder)}? Its owner may be alive: left alone it has ${readableMs(leftMs)} to commit or to ask for more, and is rolled back by itself after that. Ended now, it is rolled back and its commit refused; if it is committed already, it is rolled forward.`}
              verb={`End the transaction of ${startTs}`}
              onConfirm={() => end(forceEnd(server, holder, isCut && access.prefixes === undefined))}
            />
          )}
        </div>
      )}
    </li>
  )
}

function namesOf({ locks }: Holder): string {
  const [first] = locks
  const name = first === undefined ? 'nothing' : preview(first.key, 60)
  return locks.length > 1 ? `${name} and ${locks.length - 1} more keys` : name
}
