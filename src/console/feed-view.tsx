import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { NOTICING_HEARTBEAT_MS, STANDS_MS, StandStill } from '../client/changes/stand-still.js'
import type { ChangedKey, ChangedTxn } from '../client/index.js'
import type { HoldingLock, Status } from './answers.js'
import { Empty, Failure, KeyText, Panel, Ts } from './parts.js'
import { readableMs } from './readable-time.js'
import { addressOf } from './route.js'
import { isAbort } from './server.js'
import { useSession } from './session.js'
import { beginningOf, idOf, preview, shown, wireOf } from './wire-bytes.js'

/** Older transactions leave the page, and only the first changes of a long one are shown. */
const TXNS_KEPT = 200
const CHANGES_SHOWN = 20
const VALUE_CHARACTERS = 80
/** Shortest interval between two drawings of the page, however fast the feed is. */
const DRAW_MS = 100

interface Shown {
  readonly position: string
  readonly commitTs: number
  readonly count: number
  readonly changes: readonly {
    readonly op: string
    readonly key: string
    readonly text: string
    readonly value: string | undefined
  }[]
}

function shownOf({ position, commitTs, changes }: ChangedTxn<'bytes'>): Shown {
  return { position, commitTs, count: changes.length, changes: changes.slice(0, CHANGES_SHOWN).map(lineOf) }
}

function lineOf(change: ChangedKey<'bytes'>): Shown['changes'][number] {
  if (change.op === 'delete_range') {
    const [start, end] = [wireOf(change.start), wireOf(change.end)]
    return { op: change.op, key: idOf(start), text: `${shown(start)} to ${shown(end)}`, value: undefined }
  }
  const wire = wireOf(change.key)
  // Cut before it is decoded: the value may be long.
  const value =
    change.op === 'put' ? preview(beginningOf(change.value, 4 * VALUE_CHARACTERS), VALUE_CHARACTERS) : undefined
  return { op: change.op, key: idOf(wire), text: shown(wire), value }
}

export function FeedView(): JSX.Element {
  const { server, access } = useSession()
  const [text, setText] = useState(() => (typeof access.prefixes?.[0] === 'string' ? access.prefixes[0] : ''))
  const [followed, follow] = useState<string>()
  const [txns, setTxns] = useState<readonly Shown[]>([])
  const [resolvedTs, setResolvedTs] = useState<number>()
  const [holder, setHolder] = useState<HoldingLock>()
  const [error, setError] = useState<unknown>()
  const waiting = useRef<Shown[]>([])

  useEffect(() => {
    if (followed === undefined) return
    const stop = new AbortController()
    setTxns([])
    setHolder(undefined)
    setError(undefined)
    waiting.current = []
    let resolved: number | undefined
    const draw = setInterval(() => {
      setResolvedTs(resolved)
      if (waiting.current.length === 0) return
      const fresh = waiting.current.reverse()
      waiting.current = []
      setTxns((before) => [...fresh, ...before].slice(0, TXNS_KEPT))
    }, DRAW_MS)
    const read = async (): Promise<void> => {
      const still = new StandStill()
      const options = {
        ...({ prefix: followed, as: 'bytes', heartbeatMs: NOTICING_HEARTBEAT_MS, signal: stop.signal } as const),
        onResolved: async (ts: number) => {
          resolved = ts
          if (still.at(ts) < STANDS_MS) return setHolder(undefined)
          const status = await server.get<Status>('/v1/status', stop.signal).catch(() => undefined)
          setHolder(status?.feed.held_back_by[0])
        },
      }
      for await (const txn of server.db.changes(options)) {
        still.moved()
        waiting.current.push(shownOf(txn))
        if (waiting.current.length > TXNS_KEPT) waiting.current.shift()
      }
    }
    read().catch((failure: unknown) => {
      if (isAbort(failure) || stop.signal.aborted) return
      setError(failure)
      follow(undefined)
    })
    return () => {
      stop.abort()
      clearInterval(draw)
    }
  }, [server, followed])

  const submit = (event: Event): void => {
    event.preventDefault()
    follow(followed === undefined ? text : undefined)
  }
  return (
    <>
      <header class="view-head">
        <h1>Live feed</h1>
        <p class="lead">Every transaction that commits below a prefix from now on: whole, in order, each once.</p>
        <form class="bar" onSubmit={submit}>
          <label for="feed-prefix">Prefix</label>
          <input
            id="feed-prefix"
            class="wide bytes"
            placeholder="every key"
            spellcheck={false}
            autocapitalize="off"
            value={text}
            disabled={followed !== undefined}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <button type="submit" class={followed === undefined ? 'chief' : ''}>
            {followed === undefined ? 'Follow' : 'Stop'}
          </button>
        </form>
      </header>
      <Failure error={error} />
      <p role="status" class="said">
        {followed !== undefined && holder !== undefined && <Held by={holder} />}
      </p>
      <Panel
        title="Transactions"
        aside={
          resolvedTs !== undefined && (
            <span class="quiet">
              everything up to <Ts ts={resolvedTs} /> is here
            </span>
          )
        }
      >
        {txns.length === 0 ? (
          <Empty>{followed === undefined ? 'Not following.' : 'Waiting for a commit.'}</Empty>
        ) : (
          <ol class="feed">
            {txns.map(({ position, commitTs, count, changes }) => (
              <li key={position}>
                <Ts ts={commitTs} />
                <ul>
                  {changes.map(({ op, key, text, value }) => (
                    <li key={key}>
                      <span class={`op ${op}`}>{op}</span>
                      {op === 'delete_range' ? (
                        <KeyText of={text} />
                      ) : (
                        <a href={`${addressOf('key')}/${key}`}>
                          <bdi class="bytes">{text}</bdi>
                        </a>
                      )}
                      {value !== undefined && (
                        <bdi class="bytes">{value === '' ? <span class="quiet">empty</span> : value}</bdi>
                      )}
                    </li>
                  ))}
                  {count > changes.length && <li class="quiet">and {count - changes.length} more</li>}
                </ul>
              </li>
            ))}
          </ol>
        )}
      </Panel>
    </>
  )
}

function Held({ by: { key, start_ts, expires_in_ms } }: { readonly by: HoldingLock }): JSX.Element {
  if (key === '') return <>A lock on a key that your token does not reach holds the feed back.</>
  return (
    <>
      The feed is held back by a lock on{' '}
      <a href={addressOf('key', key)}>
        <KeyText of={key} />
      </a>{' '}
      of the transaction at <Ts ts={start_ts} />, with {readableMs(expires_in_ms)} left.
    </>
  )
}
