import type { Failure } from '../observers/rules/cell.js'
import type { FoundCell, Hint, HintedCell, StoredClaim } from '../observers/rules/hinted-cell.js'
import type { RegisteredObserver } from '../observers/rules/observer.js'
import type { Timestamp } from '../timestamp.js'
import type { CellPage } from './marked-cells.js'
import type { Pace } from './pace.js'

/**
 * The cells of observers in a store that several servers share. No server sees all commits, so nobody keeps account of what is
 * dirty: a cell is dirty when its row has a change above its acknowledgement. Hints say where to look.
 */
export interface HintedCells {
  readonly isShared: true
  /**
   * Whoever registers an observer writes its record, takes a timestamp, and lets `sinceTs` be so much above it: by then every server
   * that commits knows the observer.
   */
  readonly registeringMs: number
  /** Must be called before anything is committed. @param load reads the registrations. */
  follow(load: () => Promise<readonly RegisteredObserver[]>): Promise<void>
  /** Fulfilled when registrations that were written before the call are known. @throws KvError `storage_unavailable` */
  refresh(): Promise<void>
  /** @param listener told of cells for which this process has committed a change. Must not throw. */
  listen(listener: (id: Timestamp) => void): void

  /** Hinted cells, ascending. Fewer than `limit` only at the end. @throws KvError `storage_unavailable` */
  hinted(id: Timestamp, page: CellPage): Promise<FoundCell[]>
  /** The same for failures. */
  failures(id: Timestamp, page: CellPage): Promise<{ readonly key: Uint8Array; readonly failure: Failure }[]>
  /** `cells[i]` is that of `keys[i]`. @param ts see `HintedCell.seen`. @throws KvError `storage_unavailable` */
  look(id: Timestamp, keys: readonly Uint8Array[], ts: Timestamp): Promise<HintedCell[]>

  /** Replaces the claim that was read. @returns the claim as it stands; undefined: somebody else was faster. */
  claim(
    id: Timestamp,
    cell: Pick<FoundCell, 'key' | 'claim'>,
    claim: StoredClaim | undefined,
  ): Promise<StoredClaim | 'free' | undefined>
  /**
   * Removes the hint and the claim, if the hint is still the one that was read.
   * @param hinted as it was read before the look at the cell, which was still then.
   */
  forget(id: Timestamp, hinted: FoundCell): Promise<void>
  /** Hints at a cell without a change. */
  hint(id: Timestamp, key: Uint8Array, hint: Omit<Hint, 'value'>): Promise<void>
  /** Replaces the failure that was read, or removes it. @returns false when somebody else was faster. */
  replaceFailure(
    id: Timestamp,
    cell: Pick<HintedCell, 'key' | 'failure'>,
    failure: Failure | undefined,
  ): Promise<boolean>
  /** Removes notifications that are covered. */
  removeNotified(keys: readonly Uint8Array[]): Promise<void>

  /** Hints at `key` from the timestamp on. */
  hintAt(id: Timestamp, key: Uint8Array, ts: Timestamp): Promise<void>
  /** Turns what `hintAt` has left for timestamps up to `ts` into hints. @returns how many. */
  hintDue(id: Timestamp, ts: Timestamp): Promise<number>

  /** Removes rows of observers that are not registered, in steps. @throws KvError `storage_unavailable` */
  sweep(pace?: Pace): Promise<void>
}
