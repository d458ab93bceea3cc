import type { LockInfo } from '../../errors/lock-info.js'
import { blocksRead } from '../../percolator/actions/get.js'
import type { Lock } from '../../percolator/lock.js'
import { lockInfo } from '../../percolator/lock-info.js'
import { expiryTs, type WriteRecord } from '../../percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import type { Ack, Entry, Failure, MarkKind } from './cell.js'
import type { Notified } from './codec/cell-key.js'
import type { RegisteredObserver } from './observer.js'

/**
 * Says that a cell may be dirty. It is written before the commit of a change, while the lock of the change stands, so it may be spurious
 * and is never missing.
 */
export interface Hint {
  /** No two are equal. */
  readonly value: Uint8Array
  /** Of the change. */
  readonly commitTs: Timestamp
  /** As of an `Entry`. */
  readonly depth: number
}

/** Who has the cell, or since when it has been left alone. */
export interface StoredClaim {
  /** No two are equal. Absent before it is written. */
  readonly value?: Uint8Array | undefined
  /** 0: nobody has it, and it is delayed. */
  readonly fence: Timestamp
  /** Unix milliseconds in timestamps of the oracle: of the end of the lease or delay. */
  readonly untilMs: number
  readonly worker: string
  readonly leaseMs: number
}

export interface NotifiedRow {
  readonly key: Uint8Array
  readonly lock: Lock | undefined
  readonly committed: (Notified & { readonly commitTs: Timestamp }) | undefined
}

/** What stands in the rows of one cell, which were read one by one. */
export interface HintedCell {
  readonly key: Uint8Array
  /** Of the observed row. */
  readonly lock: Lock | undefined
  /** The newest Put or Delete of the observed row. */
  readonly newest: WriteRecord | undefined
  /** The newest at or below the timestamp of the look. */
  readonly seen: WriteRecord | undefined
  /** The newest committed run. */
  readonly ack: Ack | undefined
  readonly ackKey: Uint8Array
  readonly ackLock: Lock | undefined
  readonly notified: readonly NotifiedRow[]
  readonly hint: Hint | undefined
  readonly claim: StoredClaim | undefined
  readonly failure: Failure | undefined
}

/** A cell that a walk has found, before anything else was read of it. */
export type FoundCell = Pick<HintedCell, 'key' | 'hint' | 'claim'>

/**
 * The newest change at or below `at` that no run has covered. A Put or Delete of a run that acknowledges the cell is not told to it;
 * the run leaves a notification for what it had not seen then.
 * @param at the timestamp of the look, or `TIMESTAMP_MAX`.
 * @param now for expiries.
 */
export function uncovered(
  cell: HintedCell,
  { sinceTs }: Pick<RegisteredObserver, 'sinceTs'>,
  at: Timestamp,
  now: Timestamp = at,
): Entry | undefined {
  const { ack, newest, seen, notified, hint } = cell
  const covered = Math.max(ack?.ackTs ?? 0, sinceTs)
  let entry: Entry | undefined
  const add = (changeTs: Timestamp, kind: MarkKind, depth: number): void => {
    if (changeTs > covered && changeTs <= at && (entry === undefined || changeTs > entry.changeTs))
      entry = { changeTs, kind, depth }
  }
  const version = at === TIMESTAMP_MAX ? newest : seen
  if (version !== undefined) {
    const { commitTs, type, expireTs } = version
    if (commitTs !== ack?.commitTs) add(commitTs, type === 'delete' ? 'delete' : 'put', hint?.depth ?? 0)
    if (expireTs !== 0 && expiryTs(version) <= now) add(expiryTs(version), 'expired', 0)
  }
  for (const { committed } of notified) {
    if (committed === undefined) continue
    // A hint at the commit_ts of the notification is of a retry, which takes what was too deep. One of a prewrite has a start_ts.
    const isRetried = hint !== undefined && hint.commitTs === committed.commitTs
    add(committed.commitTs, committed.kind, isRetried ? Math.min(hint.depth, committed.depth) : committed.depth)
  }
  return entry
}

/** Locks that have to end before it is known what changed at or below `seen`, and, at `startTs`, who has acknowledged it. */
export function locksBelow(cell: HintedCell, seen: Timestamp, startTs: Timestamp): LockInfo[] {
  const found: LockInfo[] = []
  const add = (key: Uint8Array, lock: Lock | undefined, ts: Timestamp): void => {
    if (lock !== undefined && lock.startTs !== startTs && blocksRead(lock, key, ts)) found.push(lockInfo(key, lock))
  }
  add(cell.key, cell.lock, seen)
  for (const { key, lock } of cell.notified) add(key, lock, seen)
  add(cell.ackKey, cell.ackLock, startTs)
  return found
}

/** No change is about to commit. A pessimistic lock is none: whoever turns it into one does so after the look. */
export function isStill({ lock, notified }: HintedCell): boolean {
  const isChanging = (one: Lock | undefined): boolean => one?.type === 'put' || one?.type === 'delete'
  return !isChanging(lock) && !notified.some((row) => isChanging(row.lock))
}

/** When the newest version expires, if that lies ahead. */
export function expiresAt({ newest }: HintedCell, now: Timestamp): Timestamp | undefined {
  if (newest === undefined || newest.expireTs === 0) return undefined
  const at = expiryTs(newest)
  return at > now ? at : undefined
}
