import type { Failure } from '../observers/rules/cell.js'
import type { FoundCell, Hint, HintedCell, StoredClaim } from '../observers/rules/hinted-cell.js'
import type { RegisteredObserver } from '../observers/rules/observer.js'
import type { Timestamp } from '../timestamp.js'
import type { CellPage } from './marked-cells.js'
import type { Pace } from './pace.js'

/**
 * The cells of observers in a store that several servers share. No server sees all commits, so nobody counts what is dirty: a
 * cell is dirty when its row has a change above its acknowledgement. Hints say where to look.
 */
export interface HintedCells {
  readonly isShared: true
  /**
   * A registration writes the observer's record, takes a timestamp, and sets `sinceTs` this many milliseconds above it. By then
   * every server that commits knows the observer.
   */
  readonly registeringMs: number
  /** Call before the first commit. @param load reads the registrations. */
  follow(load: () => Promise<readonly RegisteredObserver[]>): Promise<void>
  /** Fulfilled when all registrations written before the call are known. @throws KvError `storage_unavailable` */
  refresh(): Promise<void>
  /** Call when a registration was written: where servers can wake each other, they read it soon. */
  announce(): void
  /**
   * @param listener gets the observer id of each cell for which this process commits a change, or another one that says so. Must
   *   not throw.
   */
  listen(listener: (id: Timestamp) => void): void
  /**
   * Call while a claim waits, so that other servers tell this one of the observer's cells.
   * @returns how many times longer than without them it may wait between two looks.
   */
  patience(id: Timestamp, waitingMs: number): number

  /** Hinted cells, ascending. Fewer than `limit` only at the end. @throws KvError `storage_unavailable` */
  hinted(id: Timestamp, page: CellPage): Promise<FoundCell[]>
  failures(id: Timestamp, page: CellPage): Promise<{ readonly key: Uint8Array; readonly failure: Failure }[]>
  /** Returns `cells[i]` for `keys[i]`. @param ts see `HintedCell.seen`. @throws KvError `storage_unavailable` */
  look(id: Timestamp, keys: readonly Uint8Array[], ts: Timestamp): Promise<HintedCell[]>

  /** Replaces the claim that was read. @returns the claim now in force; undefined when another server was faster. */
  claim(
    id: Timestamp,
    cell: Pick<FoundCell, 'key' | 'claim'>,
    claim: StoredClaim | undefined,
  ): Promise<StoredClaim | 'free' | undefined>
  /**
   * Removes the hint and the claim, if the hint is still the one that was read.
   * @param hinted as read before the look at the cell, which was quiet then.
   */
  forget(id: Timestamp, hinted: FoundCell): Promise<void>
  hint(id: Timestamp, key: Uint8Array, hint: Omit<Hint, 'value'>): Promise<void>
  /** Replaces or removes the failure that was read. @returns false when another server was faster. */
  replaceFailure(
    id: Timestamp,
    cell: Pick<HintedCell, 'key' | 'failure'>,
    failure: Failure | undefined,
  ): Promise<boolean>
  removeNotified(keys: readonly Uint8Array[]): Promise<void>

  hintAt(id: Timestamp, key: Uint8Array, ts: Timestamp): Promise<void>
  /** Turns what `hintAt` left for timestamps up to `ts` into hints. @returns their number. */
  hintDue(id: Timestamp, ts: Timestamp): Promise<number>

  sweep(pace?: Pace): Promise<void>
}
