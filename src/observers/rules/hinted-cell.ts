import type { LockInfo } from '../../errors/lock-info.js'
import { blocksRead } from '../../percolator/actions/get.js'
import type { Lock } from '../../percolator/lock.js'
import { lockInfo } from '../../percolator/lock-info.js'
import { expiryTs, type WriteRecord } from '../../percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import type { Ack, Failure, MarkKind, StoredNotification } from './cell.js'
import type { Notified } from './codec/cell-key.js'
import type { RegisteredObserver } from './observer.js'

/**
 * Says that a cell may be dirty. It is written before a change commits, while its lock exists, so hints may be spurious but are
 * never missing.
 */
export interface Hint {
  /** Unique bytes. */
  readonly value: Uint8Array
  /** commit_ts of the change. */
  readonly commitTs: Timestamp
  readonly depth: number
}

/** The claim of a cell, or its delay. */
export interface StoredClaim {
  /** Unique bytes. Absent before the claim is written. */
  readonly value?: Uint8Array | undefined
  /** 0: the cell is not claimed, but delayed. */
  readonly fence: Timestamp
  /** End of the lease or delay, in Unix milliseconds by the oracle's timestamps. */
  readonly untilMs: number
  readonly worker: string
  readonly leaseMs: number
}

export interface NotifiedRow {
  readonly key: Uint8Array
  readonly lock: Lock | undefined
  readonly committed: (Notified & { readonly commitTs: Timestamp }) | undefined
}

export interface HintedCell {
  readonly key: Uint8Array
  /** Lock of the observed row. */
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

export type FoundCell = Pick<HintedCell, 'key' | 'hint' | 'claim'>

/**
 * The newest change at or below `at` that no run has covered. A Put or Delete written by a run that acknowledges the cell does
 * not count; the run leaves a notification for changes that it had not seen.
 * @param at the timestamp of the look, or `TIMESTAMP_MAX`.
 * @param now for expiries.
 */
export function uncovered(
  cell: HintedCell,
  { sinceTs }: Pick<RegisteredObserver, 'sinceTs'>,
  at: Timestamp,
  now: Timestamp = at,
): StoredNotification | undefined {
  const { ack, newest, seen, notified, hint } = cell
  const covered = Math.max(ack?.ackTs ?? 0, sinceTs)
  let notification: StoredNotification | undefined
  const add = (changeTs: Timestamp, kind: MarkKind, depth: number): void => {
    if (changeTs > covered && changeTs <= at && (notification === undefined || changeTs > notification.changeTs))
      notification = { changeTs, kind, depth }
  }
  const version = at === TIMESTAMP_MAX ? newest : seen
  if (version !== undefined) {
    const { commitTs, type, expireTs } = version
    if (commitTs !== ack?.commitTs) add(commitTs, type === 'delete' ? 'delete' : 'put', hint?.depth ?? 0)
    if (expireTs !== 0 && expiryTs(version) <= now) add(expiryTs(version), 'expired', 0)
  }
  for (const { committed } of notified) {
    if (committed === undefined) continue
    // A hint at the commit_ts of the notification comes from a retry, which also takes what was too deep. A prewrite's hint has
    // a start_ts.
    const isRetried = hint !== undefined && hint.commitTs === committed.commitTs
    add(committed.commitTs, committed.kind, isRetried ? Math.min(hint.depth, committed.depth) : committed.depth)
  }
  return notification
}

/** Locks that must end before the changes at or below `seen`, and the acknowledgements at `startTs`, are known. */
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

/** Whether no change is about to commit. A pessimistic lock does not count: it becomes a change only after the look. */
export function isStill({ lock, notified }: HintedCell): boolean {
  const isChanging = (one: Lock | undefined): boolean => one?.type === 'put' || one?.type === 'delete'
  return !isChanging(lock) && !notified.some((row) => isChanging(row.lock))
}

/** When the newest version expires; undefined when it does not, or has expired. */
export function expiresAt({ newest }: HintedCell, now: Timestamp): Timestamp | undefined {
  if (newest === undefined || newest.expireTs === 0) return undefined
  const at = expiryTs(newest)
  return at > now ? at : undefined
}
