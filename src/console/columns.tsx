import type { ComponentChildren, JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { History, LockInfo, WriteInfo } from './answers.js'
import { KeyText, Scroll, TsText } from './parts.js'
import { readableMs } from './readable-time.js'
import { addressOf } from './route.js'
import { useSession } from './session.js'
import { isVersion } from './version-at.js'
import { idOf, preview, shown, type WireBytes } from './wire-bytes.js'

/** One timestamp of a key, with its record in each column. */
interface Row {
  readonly ts: number
  readonly value: WireBytes | 'in the lock' | undefined
  readonly lock: LockInfo | undefined
  readonly write: WriteInfo | undefined
}

const ROWS_AT_FIRST = 50
const VALUE_CHARACTERS = 60

/** Percolator's picture of a key, newest first. Short values are stored in the write record, but shown in their own column. */
function rowsOf({ lock, writes, values }: History, valueOfLock: WireBytes | undefined): Row[] {
  const rows = new Map<number, Row>()
  const add = (ts: number, part: Partial<Row>): void => {
    rows.set(ts, { value: undefined, lock: undefined, write: undefined, ...rows.get(ts), ts, ...part })
  }
  for (const write of writes) {
    add(write.commit_ts, { write })
    if (write.short_value !== undefined) add(write.start_ts, { value: write.short_value })
  }
  for (const { start_ts, value } of values) add(start_ts, { value })
  if (lock !== null) {
    const value = rows.get(lock.start_ts)?.value ?? (lock.type === 'put' ? (valueOfLock ?? 'in the lock') : undefined)
    add(lock.start_ts, { lock, value })
  }
  return [...rows.values()].sort((a, b) => b.ts - a.ts)
}

export function cellsOf(history: History): ReadonlySet<string> {
  const cells = new Set<string>()
  for (const { ts, value, lock, write } of rowsOf(history, undefined)) {
    if (value !== undefined) cells.add(`data ${ts}`)
    if (lock !== undefined) cells.add(`lock ${ts}`)
    if (write !== undefined) cells.add(`write ${ts}`)
  }
  return cells
}

export function Columns(props: {
  readonly name: WireBytes
  readonly history: History
  /** Rows above it are dimmed. */
  readonly at?: number | undefined
  /** Whether versions are links to their times. */
  readonly travels?: boolean
  /** Other cells are marked as new. */
  readonly known?: ReadonlySet<string> | undefined
  /** The value that the lock will write, if the caller knows it. */
  readonly valueOfLock?: WireBytes | undefined
  /** Names that the caller has for timestamps. */
  readonly names?: ReadonlyMap<number, string> | undefined
}): JSX.Element {
  const { name, history, at, travels = false, known, valueOfLock, names } = props
  const { safePoint } = useSession()
  const [count, setCount] = useState(ROWS_AT_FIRST)
  const rows = rowsOf(history, valueOfLock)
  const mark = (cell: string): string => (known !== undefined && !known.has(cell) ? 'new' : '')
  const seen = rows.find(
    ({ ts, write }) => write !== undefined && isVersion(write.type) && ts <= (at ?? Number.POSITIVE_INFINITY),
  )?.ts
  return (
    <Scroll label={`Columns of ${shown(name)}`}>
      <table class="columns">
        <thead>
          <tr>
            <th scope="col">timestamp</th>
            <th scope="col" class="data">
              data
            </th>
            <th scope="col" class="lock">
              lock
            </th>
            <th scope="col" class="write">
              write
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.length === 0 && (
            <tr>
              <td colSpan={4} class="quiet">
                nothing is stored
              </td>
            </tr>
          )}
          {rows.slice(0, count).map(({ ts, value, lock, write }) => (
            <tr key={ts} class={at !== undefined && ts > at ? 'future' : ''}>
              <th scope="row">
                <Travel name={name} to={travels ? readableAt(history, ts, safePoint) : undefined}>
                  <TsText ts={ts} isExact />
                </Travel>
                {names?.get(ts) !== undefined && <span class="tag">{names.get(ts)}</span>}
                {ts === seen && <span class="tag reads">{at === undefined ? 'latest' : 'read here'}</span>}
              </th>
              <td class={`data ${value === undefined ? '' : mark(`data ${ts}`)}`}>
                {value === 'in the lock' && <span class="quiet">short, kept in the lock</span>}
                {value !== undefined && value !== 'in the lock' && <Value of={value} />}
              </td>
              <td class={`lock ${lock === undefined ? '' : mark(`lock ${ts}`)}`}>
                {lock && <LockCell lock={lock} name={name} />}
              </td>
              <td class={`write ${write === undefined ? '' : mark(`write ${ts}`)}`}>
                {write && <WriteCell write={write} />}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > count && (
        <button type="button" class="more" onClick={() => setCount(count * 4)}>
          {rows.length - count} older
        </button>
      )}
    </Scroll>
  )
}

/** @returns a time at which the version that was committed at `ts` is read; undefined: none is left, or there is no version. */
function readableAt({ writes }: History, ts: number, safePoint: number): number | undefined {
  const read = writes.find(({ type, commit_ts }) => isVersion(type) && commit_ts <= Math.max(ts, safePoint))
  return read?.commit_ts === ts ? Math.max(ts, safePoint) : undefined
}

function Travel(props: {
  readonly name: WireBytes
  readonly to: number | undefined
  readonly children: ComponentChildren
}): JSX.Element {
  if (props.to === undefined) return <>{props.children}</>
  return (
    <a href={addressOf('key', props.name, { at: props.to })} title="Go to the time of this version">
      {props.children}
    </a>
  )
}

function Value({ of }: { readonly of: WireBytes }): JSX.Element {
  return <bdi class="bytes">{of === '' ? <span class="quiet">empty</span> : preview(of, VALUE_CHARACTERS)}</bdi>
}

function LockCell({ lock, name }: { readonly lock: LockInfo; readonly name: WireBytes }): JSX.Element {
  const isPrimary = idOf(lock.primary) === idOf(name)
  return (
    <>
      {isPrimary ? (
        <strong>I am primary</strong>
      ) : (
        <>
          primary @ <KeyText of={lock.primary} />
        </>
      )}
      <small>
        {lock.type}, TTL {readableMs(lock.ttl)}
        {lock.use_async_commit && ', async commit'}
      </small>
    </>
  )
}

function WriteCell({ write }: { readonly write: WriteInfo }): JSX.Element {
  const what = { put: 'data @', delete: 'delete @', lock: 'lock only @', rollback: 'rolled back @' }[write.type]
  return (
    <>
      {what} <span class="number">{write.start_ts}</span>
      {write.expire_ts !== undefined && <small>expires @ {write.expire_ts}</small>}
      {write.lease_fence !== undefined && <small>lease @ {write.lease_fence}</small>}
    </>
  )
}
