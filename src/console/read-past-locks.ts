import { afterKey } from '../bytes/key-range.js'
import type { History, LockInfo, Pair, Version } from './answers.js'
import { Refused, type Server } from './server.js'
import { versionAt } from './version-at.js'
import { compareBytes, idOf, jsonBytes, sizeOf, type WireBytes, wireOf } from './wire-bytes.js'

/**
 * Reads that neither wait for the transactions of others nor end them. Where a lock is in the way, they read that one key as it
 * was before its lock, and everything else as of the timestamp asked for.
 */

export interface SliceRequest {
  readonly start: Uint8Array
  readonly end: Uint8Array | undefined
  readonly ts: number
  readonly limit: number
  readonly keyOnly: boolean
}

export interface Slice {
  readonly pairs: readonly Pair[]
  /** Where the next slice begins; undefined at the end of the range. */
  readonly next: Uint8Array | undefined
  /** Locks that were in the way. */
  readonly locks: readonly LockInfo[]
}

/** Locks that one slice passes: each takes two requests. */
const LOCKS_PASSED_MAX = 16

export async function readSlice(server: Server, asked: SliceRequest, signal: AbortSignal): Promise<Slice> {
  const { start, end, ts, limit, keyOnly } = asked
  if (end !== undefined && compareBytes(start, end) >= 0) return { pairs: [], next: undefined, locks: [] }
  try {
    const range = { ...(start.length > 0 && { start: wireOf(start) }), ...(end && { end: wireOf(end) }) }
    const body = { ...range, limit, ts, key_only: keyOnly }
    const { pairs } = await server.percolator<{ pairs: Pair[] }>('scan', body, signal)
    const last = pairs.at(-1)
    const next = last === undefined || pairs.length < limit ? undefined : afterKey(jsonBytes(last.key))
    return { pairs, next, locks: [] }
  } catch (error) {
    const locks = locksIn(error).slice(0, LOCKS_PASSED_MAX)
    if (locks.length === 0) throw error
    return passing(server, asked, locks, signal)
  }
}

const KEYS_PER_SLICE = 1000
const PAIRS_AT_FIRST = 8
/** Slices with values grow up to this size. */
const SLICE_BYTES_GOAL = 256 * 1024

/** The slices of a range, one after the other. */
export async function* slicesOf(
  server: Server,
  asked: Omit<SliceRequest, 'limit'>,
  signal: AbortSignal,
  limitMax = KEYS_PER_SLICE,
): AsyncGenerator<Slice, void, undefined> {
  let limit = asked.keyOnly ? KEYS_PER_SLICE : PAIRS_AT_FIRST
  for (let start: Uint8Array | undefined = asked.start; start !== undefined; ) {
    let slice: Slice
    try {
      slice = await readSlice(server, { ...asked, start, limit }, signal)
    } catch (error) {
      if (!(error instanceof Refused) || error.code !== 'payload_too_large' || limit === 1) throw error
      limit = Math.ceil(limit / 8)
      continue
    }
    yield slice
    start = slice.next
    if (bytesOf(slice.pairs) > SLICE_BYTES_GOAL) limit = Math.ceil(limit / 4)
    else limit = Math.min(limitMax, limit * 4)
  }
}

/** Of keys and values. */
export function bytesOf(pairs: readonly Pair[]): number {
  return pairs.reduce((sum, { key, value = '' }) => sum + sizeOf(key) + sizeOf(value), 0)
}

/** The keys between the locks, and those of the locks. */
async function passing(
  server: Server,
  asked: SliceRequest,
  locks: readonly LockInfo[],
  signal: AbortSignal,
): Promise<Slice> {
  const parts = await Promise.all(
    locks.map(async (lock, i) => {
      const before = locks[i - 1]
      const start = before === undefined ? asked.start : afterKey(jsonBytes(before.key))
      const gap = await readSlice(server, { ...asked, start, end: jsonBytes(lock.key) }, signal)
      return { gap, lock, old: await readBefore(server, lock, asked.ts, asked.keyOnly, signal) }
    }),
  )
  const pairs: Pair[] = []
  const passed: LockInfo[] = []
  let next = asked.start
  for (const { gap, lock, old } of parts) {
    pairs.push(...gap.pairs)
    passed.push(...gap.locks)
    if (gap.next !== undefined) return { pairs, next: gap.next, locks: passed }
    pairs.push(...old)
    passed.push(lock)
    next = afterKey(jsonBytes(lock.key))
  }
  return { pairs, next, locks: passed }
}

/** The pairs of some keys, in any order. */
export async function readKeys(
  server: Server,
  keys: readonly WireBytes[],
  ts: number,
  signal: AbortSignal,
): Promise<readonly Pair[]> {
  if (keys.length === 0) return []
  try {
    return (await server.percolator<{ pairs: Pair[] }>('batch_get', { keys, ts }, signal)).pairs
  } catch (error) {
    const locks = locksIn(error)
    if (locks.length === 0) throw error
    const locked = new Set(locks.map(({ key }) => idOf(key)))
    const free = keys.filter((key) => !locked.has(idOf(key)))
    const before = locks.map((lock) => readBefore(server, lock, ts, false, signal))
    return (await Promise.all([readKeys(server, free, ts, signal), ...before])).flat()
  }
}

/** At most one pair. @param ts of the read that the lock is in the way of. */
async function readBefore(
  server: Server,
  { key, start_ts, for_update_ts }: LockInfo,
  ts: number,
  keyOnly: boolean,
  signal: AbortSignal,
): Promise<readonly Pair[]> {
  // While a pessimistic transaction was open, others may have committed above its start_ts, before it locked the key.
  if (for_update_ts > start_ts) {
    const version = versionAt(await server.percolator<History>('mvcc_get_by_key', { key }, signal), ts)
    return version === undefined ? [] : [pairOf(key, version, keyOnly)]
  }
  if (start_ts <= 1) return []
  const end = wireOf(afterKey(jsonBytes(key)))
  const body = { start: key, end, limit: 1, ts: start_ts - 1, key_only: keyOnly }
  return (await server.percolator<{ pairs: Pair[] }>('scan', body, signal)).pairs
}

function pairOf(key: WireBytes, { value, commitTs, expireTs, leaseFence }: Version, keyOnly: boolean): Pair {
  return {
    ...{ key, commit_ts: commitTs, ...(!keyOnly && { value }) },
    ...(expireTs !== undefined && { expire_ts: expireTs }),
    ...(leaseFence !== undefined && { lease_fence: leaseFence }),
  }
}

function locksIn(error: unknown): readonly LockInfo[] {
  if (!(error instanceof Refused) || error.code !== 'key_locked') return []
  const { lock, locks = lock === undefined ? [] : [lock] } = error.problem as {
    readonly lock?: LockInfo
    readonly locks?: readonly LockInfo[]
  }
  return locks
}
