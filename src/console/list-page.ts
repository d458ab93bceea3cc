import { afterPrefix } from '../bytes/key-range.js'
import type { LockInfo, Pair } from './answers.js'
import { readKeys, readSlice } from './read-past-locks.js'
import type { Server } from './server.js'
import { charactersOf, compareBytes, jsonBytes, type WireBytes, wireOf } from './wire-bytes.js'

/** A key with its version, or all keys up to and with the next slash. */
export interface Entry {
  readonly key: WireBytes
  /** undefined: a folder. */
  readonly pair: Pair | undefined
}

export interface ListPage {
  readonly entries: readonly Entry[]
  readonly ts: number
  /** First key of the next page; undefined on the last. */
  readonly next: Uint8Array | undefined
  /** The first locks of the page's range. */
  readonly locks: readonly LockInfo[]
  /** Locks that were in the way. Their keys are shown as they were before. */
  readonly passed: readonly LockInfo[]
}

interface Asked {
  readonly prefix: WireBytes
  readonly from?: Uint8Array | undefined
  readonly at?: number | undefined
}

const ENTRIES_MAX = 100
const SCAN_LIMIT = 256
const LOCKS_SHOWN = 100
/** Requests per page: folders of a few keys each take one per hundred or so. */
const SCANS_MAX = 40
const SLASH = 0x2f

/** Reads one page of the keys below a prefix. Looking changes nothing: it waits for no transaction, and ends none. */
export async function loadListPage(
  server: Server,
  { prefix, from, at }: Asked,
  signal: AbortSignal,
): Promise<ListPage> {
  const bytes = jsonBytes(prefix)
  const end = afterPrefix(bytes)
  let start: Uint8Array | undefined = from ?? bytes
  const range = { ...(start.length > 0 && { start: wireOf(start) }), ...(end && { end: wireOf(end) }) }
  const { locks } = await server.percolator<{ locks: LockInfo[] }>(
    'scan_lock',
    { max_ts: Number.MAX_SAFE_INTEGER, limit: LOCKS_SHOWN, ...range },
    signal,
  )
  const ts = at ?? (await server.tso(signal))
  const entries: Entry[] = []
  const passed: LockInfo[] = []
  for (let scans = 0; start !== undefined && scans < SCANS_MAX && entries.length < ENTRIES_MAX; scans++) {
    const slice = await readSlice(server, { start, end, ts, limit: SCAN_LIMIT, keyOnly: true }, signal)
    passed.push(...slice.locks)
    start = take(slice.pairs, bytes, entries, slice.next)
  }
  const next = start
  const onPage = locks.filter(({ key }) => next === undefined || compareBytes(jsonBytes(key), next) < 0)
  return { entries, ts, next, locks: onPage, passed }
}

/** Adds entries for the pairs. @returns the key to continue at; undefined at the end. */
function take(
  pairs: readonly Pair[],
  prefix: Uint8Array,
  entries: Entry[],
  next: Uint8Array | undefined,
): Uint8Array | undefined {
  let folder: Uint8Array | undefined
  for (const pair of pairs) {
    const bytes = jsonBytes(pair.key)
    if (folder !== undefined && startsWith(bytes, folder)) continue
    if (entries.length >= ENTRIES_MAX) return bytes
    const slash = bytes.indexOf(SLASH, prefix.length)
    folder = slash === -1 ? undefined : bytes.slice(0, slash + 1)
    entries.push(folder === undefined ? { key: pair.key, pair } : { key: wireOf(folder), pair: undefined })
  }
  if (next === undefined || folder === undefined || !startsWith(next, folder)) return next
  return afterPrefix(folder)
}

function startsWith(bytes: Uint8Array, prefix: Uint8Array): boolean {
  return compareBytes(bytes.subarray(0, prefix.length), prefix) === 0
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
  const keys = entries.flatMap(({ key, pair }) => (pair === undefined ? [] : [key]))
  let budget = PREVIEW_BUDGET
  for (let i = 0; i < keys.length && budget > 0; i += PREVIEWS_AT_ONCE) {
    const pairs = await readKeys(server, keys.slice(i, i + PREVIEWS_AT_ONCE), ts, signal)
    for (const { value = '' } of pairs) budget -= charactersOf(value)
    onPairs(pairs)
  }
}
