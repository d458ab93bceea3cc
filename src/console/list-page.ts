import { afterPrefix } from '../bytes/key-range.js'
import type { LockInfo, Pair } from './answers.js'
import { Refused, type Server } from './server.js'
import { jsonBytes, type WireBytes, wireOf } from './wire-bytes.js'

/** A key, or all keys up to and with the next slash. */
export interface Entry {
  readonly kind: 'key' | 'folder'
  readonly key: WireBytes
}

export interface ListPage {
  readonly entries: readonly Entry[]
  readonly ts: number
  /** First key of the next page; undefined on the last. */
  readonly next: Uint8Array | undefined
  /** The first locks below the prefix. */
  readonly locks: readonly LockInfo[]
  /** Whether `ts` is just before a lock that was in the way, instead of what was asked for. */
  readonly isBeforeLock: boolean
}

const ENTRIES_MAX = 100
const SCAN_LIMIT = 256
const LOCKS_SHOWN = 100
/** Requests per page: folders of a few keys each take one per hundred or so. */
const SCANS_MAX = 40
const SLASH = 0x2f

/**
 * Reads one page of the keys below a prefix. Uses the protocol's own calls, because they change nothing: where a lock is in the
 * way, it reads as of just before the lock, instead of waiting for the transaction or ending it.
 */
export async function loadListPage(
  server: Server,
  {
    prefix,
    from,
    at,
  }: { readonly prefix: WireBytes; readonly from?: Uint8Array | undefined; readonly at?: number | undefined },
  signal: AbortSignal,
): Promise<ListPage> {
  const bytes = jsonBytes(prefix)
  const end = afterPrefix(bytes)
  const range = { ...(bytes.length > 0 && { start: prefix }), ...(end && { end: wireOf(end) }) }
  const { locks } = await server.percolator<{ locks: LockInfo[] }>(
    'scan_lock',
    { max_ts: Number.MAX_SAFE_INTEGER, limit: LOCKS_SHOWN, ...range },
    signal,
  )
  const asked = at ?? (await server.tso(signal))
  let ts = asked
  for (let tries = 0; ; tries++) {
    try {
      return { ...(await collect(server, bytes, end, from, ts, signal)), locks, isBeforeLock: ts !== asked }
    } catch (error) {
      const before = tries < 5 ? beforeLocks(error) : undefined
      if (before === undefined) throw error
      ts = before
    }
  }
}

/** The newest snapshot below the locks that a read has met. */
function beforeLocks(error: unknown): number | undefined {
  if (!(error instanceof Refused) || error.code !== 'key_locked') return undefined
  const { lock, locks = lock === undefined ? [] : [lock] } = error.problem as {
    readonly lock?: LockInfo
    readonly locks?: readonly LockInfo[]
  }
  const first = Math.min(...locks.map(({ start_ts }) => start_ts))
  return first > 1 && Number.isFinite(first) ? first - 1 : undefined
}

async function collect(
  server: Server,
  prefix: Uint8Array,
  end: Uint8Array | undefined,
  from: Uint8Array | undefined,
  ts: number,
  signal: AbortSignal,
): Promise<Pick<ListPage, 'entries' | 'ts' | 'next'>> {
  const entries: Entry[] = []
  let start: Uint8Array | undefined = from ?? prefix
  for (let scans = 0; start !== undefined && scans < SCANS_MAX && entries.length < ENTRIES_MAX; scans++) {
    const range: object = { ...(start.length > 0 && { start: wireOf(start) }), ...(end && { end: wireOf(end) }) }
    const asked = { ...range, limit: SCAN_LIMIT, ts, key_only: true }
    const { pairs } = await server.percolator<{ pairs: Pair[] }>('scan', asked, signal)
    start = take(pairs, prefix, entries, pairs.length === SCAN_LIMIT)
    if (start !== undefined && end !== undefined && compare(start, end) >= 0) start = undefined
  }
  return { entries, ts, next: start }
}

/** Adds entries for the pairs. @returns the key to continue at; undefined at the end. */
function take(pairs: readonly Pair[], prefix: Uint8Array, entries: Entry[], isMore: boolean): Uint8Array | undefined {
  let folder: Uint8Array | undefined
  let last: Uint8Array | undefined
  for (const { key } of pairs) {
    const bytes = jsonBytes(key)
    if (folder !== undefined && startsWith(bytes, folder)) continue
    if (entries.length >= ENTRIES_MAX) return bytes
    const slash = bytes.indexOf(SLASH, prefix.length)
    folder = slash === -1 ? undefined : bytes.slice(0, slash + 1)
    last = bytes
    entries.push(folder === undefined ? { kind: 'key', key } : { kind: 'folder', key: wireOf(folder) })
  }
  if (!isMore || last === undefined) return undefined
  return folder === undefined ? Uint8Array.from([...last, 0]) : afterPrefix(folder)
}

function startsWith(bytes: Uint8Array, prefix: Uint8Array): boolean {
  return prefix.every((byte, i) => bytes[i] === byte)
}

function compare(one: Uint8Array, other: Uint8Array): number {
  for (let i = 0; i < one.length && i < other.length; i++)
    if (one[i] !== other[i]) return (one[i] as number) - (other[i] as number)
  return one.length - other.length
}

const PREVIEWS_AT_ONCE = 10
/** Values of a page are fetched for their previews up to this many characters. */
const PREVIEW_BUDGET = 4 * 1024 * 1024

/** Reads the values of a page, a few at a time. Stops when they are long. */
export async function loadValues(
  server: Server,
  { entries, ts }: ListPage,
  onPairs: (pairs: readonly Pair[]) => void,
  signal: AbortSignal,
): Promise<void> {
  const keys = entries.flatMap(({ kind, key }) => (kind === 'key' ? [key] : []))
  let budget = PREVIEW_BUDGET
  for (let i = 0; i < keys.length && budget > 0; i += PREVIEWS_AT_ONCE) {
    const some = keys.slice(i, i + PREVIEWS_AT_ONCE)
    const { pairs } = await server.percolator<{ pairs: Pair[] }>('batch_get', { keys: some, ts }, signal)
    for (const { value = '' } of pairs) budget -= typeof value === 'string' ? value.length : value.base64.length
    onPairs(pairs)
  }
}
