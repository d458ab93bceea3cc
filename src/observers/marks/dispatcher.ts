import { MinHeap, type Ranked } from '../../bytes/min-heap.js'
import type { HandedOut } from '../../store/marked-cells.js'
import type { Timestamp } from '../../timestamp.js'
import type { StoredNotification } from '../rules/cell.js'
import type { CellBudget } from './cell-budget.js'
import { Cursor } from './cursor.js'

export interface DispatcherSizes {
  /** Ready cells queued in memory, in order of their marks. The cursor finds the others. */
  readonly fifo: number
  /** Total bytes of their keys, which may be long. */
  readonly fifoBytes: number
  /** The cursor reads the next page when fewer of the cells that it found are left. */
  readonly found: number
}

const SIZES: DispatcherSizes = { fifo: 4096, fifoBytes: 1024 * 1024, found: 256 }
const HAS_NOT_FAILED: HandedOut = { fence: 0, hasFailure: false }
const MAY_HAVE_FAILED: HandedOut = { fence: 0, hasFailure: true }
/** Claims and delays that end in one turn of the event loop. */
const DUE_MAX = 2048

/**
 * - `queued`: ready, in the FIFO or among the cells that the cursor found.
 * - `passed`: ready, left to the cursor. Only cells that have failed before are kept in memory in this state, while there is
 *   room.
 * - `withheld`: the outcome of a failed run is being written.
 */
type State = 'queued' | 'passed' | 'claimed' | 'withheld' | 'delayed' | 'parked' | 'forgotten'

/** A cell that the dispatcher keeps in memory. Only the dispatcher changes it. `rank`: end of its lease, or of its delay. */
export interface KnownCell extends Ranked {
  readonly text: string
  state: State
  /** The last notification reported by the store or found on disk. A parked cell has none on disk. */
  notification: StoredNotification
  /** Marked since the last decision about the cell. */
  isMarked: boolean
  /** Number of failed runs. */
  attempts: number
  /** There is a failure on disk, or there may be one. */
  hasFailure: boolean
  /** The cell became known while failures were forgotten, so it may have failed before, and may have been parked. */
  isUnsure: boolean
  /** Present while the cell is claimed or withheld. */
  claim: WorkerClaim | undefined
  /** Fence of the last claim. */
  fence: Timestamp
  isFound: boolean
  /** Position among the uncovered changes, by changeTs. */
  readonly age: Ranked
}

/** A claim is in force while its cell refers to it. */
export interface WorkerClaim {
  readonly cell: KnownCell
  readonly worker: string
  readonly leaseMs: number
  /** 0 until `fenced` is called. */
  fence: Timestamp
}

export interface KnownFailure {
  readonly attempts: number
  readonly notBeforeMs: number
  readonly notification: StoredNotification
  readonly isParked: boolean
}

export interface Take {
  readonly limit: number
  readonly worker: string
  readonly leaseMs: number
  /** Infinity: the lease starts with `extend`. */
  readonly nowMs: number
}

/**
 * Decides which cells of one observer are handed out next, and keeps those that are not ready. It does no IO. The notifications
 * on disk are the truth: the cursor finds what the dispatcher forgets.
 *
 * The queue of ready cells is bounded. A mark beyond it is left to the cursor, which goes round over the notifications on disk.
 * Claims take from both in turn, so no cell waits longer than a round. Memory knows every dirty cell after a complete round,
 * unless a mark was left to the cursor behind its place: then there is another round. So nothing is forgotten when the queue
 * overflows, and after a start one round finds what stands.
 *
 * Parked cells, and ready ones that have failed before, are remembered while there is room. When some are forgotten, the failures
 * on disk stay. From then on any unknown cell may have failed: its acknowledgement removes a failure too, and counts of parked
 * cells may be too high. Parking and back-off stay right, because a failed run reads the failure on disk.
 */
export class Dispatcher {
  readonly #budget: CellBudget
  readonly #sizes: DispatcherSizes
  readonly #cells = new Map<string, KnownCell>()
  readonly #fifo = new Set<KnownCell>()
  #fifoBytes = 0
  readonly #found = new Set<KnownCell>()
  readonly #times = new MinHeap<KnownCell>()
  /** The cells counted by `pending`. */
  readonly #ages = new MinHeap<Ranked>()
  readonly #claimedBy = new Map<string, number>()
  readonly #cursor = new Cursor()
  readonly #counts: Record<State, number> = {
    queued: 0,
    passed: 0,
    claimed: 0,
    withheld: 0,
    delayed: 0,
    parked: 0,
    forgotten: 0,
  }
  #takesFound = false
  /** Cells that changed since the current page was asked for; the page may show their old state. */
  #touched: Set<string> | undefined
  /** Cells that were left to the cursor meanwhile. */
  #left: string[] = []
  /** There may be failures on disk of unknown cells, because the budget had no room for them. */
  #isForgetful = false
  /** Number of unknown parked cells. It may be too high, by those that were marked again. */
  #unknownParked = 0
  #isUnparked = false

  constructor(budget: CellBudget, sizes = SIZES) {
    this.#budget = budget
    this.#sizes = sizes
  }

  // ---- State

  /**
   * The known state of a cell for a run that acknowledges it. **The notification of a claimed cell is the one on disk** whenever
   * the latch of its row is free, and no run has committed since the fence, because:
   *
   * - Every batch that puts or removes a notification is reported here before its latch is released, and a run's batch thereby
   *   ends the claim.
   * - A page shows a cell as of some time after it was asked for. It counts only for a cell without a report since then
   *   (`#touched`), and never for a claimed one. Batches in progress are reported later.
   * - The same holds for failures and their notifications that are read at the start. A failure without a notification makes no
   *   cell ready.
   * - While a failed write is in doubt this is not called (`SystemReads.isOutcomeKnown`); after it all claims are void.
   * - A claim without a fence does not count: a run may have committed since the fence before.
   */
  handedOut(text: string): HandedOut {
    const cell = this.#cells.get(text)
    if (cell === undefined) return this.#isForgetful ? MAY_HAVE_FAILED : HAS_NOT_FAILED
    const { fence, hasFailure, claim } = cell
    const notification = claim !== undefined && claim.fence > 0 && isClaimed(claim) ? cell.notification : undefined
    return { fence, hasFailure, notification }
  }

  count(state: 'claimed' | 'delayed' | 'parked'): number {
    const { claimed, withheld, delayed, parked } = this.#counts
    if (state === 'claimed') return claimed + withheld
    return state === 'delayed' ? delayed : parked + this.#unknownParked
  }

  /** Number of known cells that are ready, claimed or delayed. */
  get pending(): number {
    const { queued, passed, claimed, withheld, delayed } = this.#counts
    return queued + passed + claimed + withheld + delayed
  }

  /** Whether every dirty cell is known. */
  get knowsAll(): boolean {
    return !this.#cursor.isGoing
  }

  /** Failures were forgotten, and the budget has room again: call `begin`. */
  get mayRemember(): boolean {
    const { remembered, max, remembersNoMore } = this.#budget
    return this.#isForgetful && !remembersNoMore && (this.#isUnparked || remembered <= max / 2)
  }

  /** Call when the parked cells were removed from the disk. */
  unparked(): void {
    this.#isUnparked = true
  }

  /** changeTs of the oldest change known to be uncovered; 0: none. */
  get oldest(): Timestamp {
    return this.#ages.first?.rank ?? 0
  }

  /** Number of claims per worker name. */
  get claimedBy(): ReadonlyMap<string, number> {
    return this.#claimedBy
  }

  // ---- Start

  reset(): void {
    for (const cell of [...this.#cells.values()]) this.#forget(cell)
    this.begin()
    this.#cursor.startAt(undefined)
  }

  /** Starts loading the cells on disk; call `add` for each failure, then `startAt`. A page that is being read is ignored. */
  begin(): void {
    this.#isForgetful = false
    this.#unknownParked = 0
    this.#isUnparked = false
    this.#touched = undefined
    this.#left = []
  }

  /** Call before cells are read for `add`. @returns the cells that change from now until `endRead`; they must be read again. */
  beginRead(): ReadonlySet<string> {
    this.#touched = new Set()
    return this.#touched
  }

  endRead(): void {
    this.#touched = undefined
    for (const text of this.#left.splice(0)) this.#cursor.meet(text)
  }

  /** Without room for its delay, the cell is ready early. */
  add(text: string, { attempts, notBeforeMs, notification, isParked }: KnownFailure, nowMs: number): void {
    const known = this.#cells.get(text)
    if (known !== undefined && known.state !== 'queued' && known.state !== 'passed') return
    const cell = known ?? this.#know(text, notification)
    this.#failed(cell, attempts)
    if (isParked) this.#park(cell)
    else if (notBeforeMs > nowMs && !this.#budget.isFull) this.#moveUntil(cell, 'delayed', notBeforeMs, true)
    else this.#ready(cell, true)
  }

  startAt(after: string | undefined): void {
    this.#cursor.startAt(after)
  }

  // ---- Changes of cells

  marked(text: string, notification: StoredNotification): void {
    this.#touched?.add(text)
    const cell = this.#cells.get(text)
    if (cell === undefined) {
      this.#ready(this.#know(text, notification))
      return
    }
    this.#renew(cell, notification)
    cell.isMarked = true
    if (cell.state === 'parked') this.#ready(cell)
  }

  /** Call when a cell was parked, or its mark was too deep. */
  parked(text: string, attempts: number, notification: StoredNotification): void {
    this.#touched?.add(text)
    const cell = this.#cells.get(text) ?? this.#know(text, notification)
    this.#renew(cell, notification)
    this.#failed(cell, attempts)
    this.#park(cell)
  }

  /** @param notification the part that is still to be run. */
  acknowledged(text: string, notification: StoredNotification | undefined): void {
    this.#touched?.add(text)
    const cell = this.#cells.get(text)
    if (cell === undefined) {
      if (notification !== undefined) this.#ready(this.#know(text, notification))
    } else if (notification === undefined) {
      this.#forget(cell)
    } else {
      this.#renew(cell, notification)
      this.#noFailure(cell)
      this.#ready(cell)
    }
  }

  // ---- Claims

  /** @returns new claims, which wait for their fences. `isRefused`: cells are ready, but the budget has no room. */
  take({ limit, worker, leaseMs, nowMs }: Take): { readonly claims: WorkerClaim[]; readonly isRefused: boolean } {
    const claims: WorkerClaim[] = []
    const sources = { fifo: this.#fifo.values(), found: this.#found.values() }
    while (claims.length < limit && this.#counts.queued > 0) {
      if (this.#budget.isFull) return { claims, isRefused: true }
      const takesFound = this.#found.size > 0 && (this.#takesFound || this.#fifo.size === 0)
      const cell = (takesFound ? sources.found : sources.fifo).next().value as KnownCell
      this.#takesFound = !takesFound
      cell.claim = { cell, worker, leaseMs, fence: 0 }
      this.#moveUntil(cell, 'claimed', nowMs + leaseMs)
      claims.push(cell.claim)
    }
    return { claims, isRefused: false }
  }

  /** @returns false when the claim is over already. */
  fenced(claim: WorkerClaim, fence: Timestamp): boolean {
    if (!isClaimed(claim)) return false
    claim.fence = fence
    claim.cell.fence = fence
    return true
  }

  /** The claim with this fence, while it is in force. */
  claimed(text: string, fence: Timestamp): WorkerClaim | undefined {
    const claim = this.#cells.get(text)?.claim
    return claim !== undefined && claim.fence === fence && fence > 0 && isClaimed(claim) ? claim : undefined
  }

  extend(claim: WorkerClaim, untilMs: number): void {
    if (isClaimed(claim)) this.#moveUntil(claim.cell, 'claimed', untilMs)
  }

  /** Ends a claim without counting an attempt. @param atMs when the cell is ready; absent: at once. */
  release(claim: WorkerClaim, atMs?: number): void {
    const { cell } = claim
    if (!isClaimed(claim)) return
    if (atMs === undefined) this.#ready(cell)
    else this.#moveUntil(cell, 'delayed', atMs)
  }

  // ---- Failed runs

  /** Ends the claim. The cell is not handed out until `failureWritten` or `failureUnwritten` is called. */
  withhold({ cell }: WorkerClaim): void {
    this.#move(cell, 'withheld')
  }

  /**
   * Call in the same turn as the decision about the cell. Marks reported later are newer.
   * @param wasParked the cell was parked, and marked since.
   * @returns false when a run has committed since: then nothing must be written.
   */
  decided(claim: WorkerClaim, wasParked: boolean): boolean {
    const { cell } = claim
    if (!stands(claim)) return false
    if (wasParked && cell.isUnsure) this.#lessParked()
    cell.isUnsure = false
    cell.isMarked = false
    this.#move(cell, 'withheld', true) // A run may commit before the outcome is reported.
    return true
  }

  /** The outcome could not be written: the run counts as not begun. */
  failureUnwritten(claim: WorkerClaim, atMs: number): void {
    if (stands(claim)) this.#moveUntil(claim.cell, 'delayed', atMs)
  }

  /**
   * The outcome is on disk. A cell parked by it needs nothing more, because that was reported already.
   * @param failure absent: another run has committed, and the cell was clean.
   */
  failureWritten(claim: WorkerClaim, failure: KnownFailure | undefined, nowMs: number): void {
    const { cell } = claim
    if (!stands(claim)) return
    this.#touched?.add(cell.text)
    if (failure === undefined) {
      if (!cell.isMarked) {
        this.#forget(cell)
        return
      }
      this.#noFailure(cell)
      this.#ready(cell)
      return
    }
    this.#failed(cell, failure.attempts)
    if (failure.notBeforeMs <= nowMs) this.#ready(cell, true)
    else this.#moveUntil(cell, 'delayed', failure.notBeforeMs, true)
  }

  /** Call when a parked cell was skipped: it is clean. */
  skipped(text: string): void {
    this.#touched?.add(text)
    const cell = this.#cells.get(text)
    if (cell === undefined) this.#lessParked()
    else this.#forget(cell)
  }

  /** Call when a parked cell was retried: it is ready, with no failures. */
  retried(text: string, notification: StoredNotification): void {
    this.#touched?.add(text)
    const known = this.#cells.get(text)
    if (known === undefined) this.#lessParked()
    const cell = known ?? this.#know(text, notification)
    this.#renew(cell, notification)
    this.#noFailure(cell)
    if (cell.state === 'parked' || cell.state === 'forgotten') this.#ready(cell)
  }

  // ---- Time

  /** When `due` has work; undefined: never. */
  get nextMs(): number | undefined {
    return this.#times.first?.rank
  }

  /**
   * Ends delays that are over. @returns claims whose lease is over, `withheld` now. At most `DUE_MAX` at once; more may be left.
   */
  due(nowMs: number): WorkerClaim[] {
    const expired: WorkerClaim[] = []
    for (let i = 0; i < DUE_MAX; i++) {
      const cell = this.#times.first
      if (cell === undefined || cell.rank > nowMs) break
      if (cell.claim === undefined) {
        this.#ready(cell)
      } else {
        this.withhold(cell.claim)
        expired.push(cell.claim)
      }
    }
    return expired
  }

  // ---- The cursor

  /** Whether the next page of notifications should be read. */
  get wantsPage(): boolean {
    return this.#cursor.isGoing && this.#found.size < this.#sizes.found && this.#touched === undefined
  }

  /** @returns the key after which the page begins. `endPage` or `endRead` must follow. */
  beginPage(): string | undefined {
    this.beginRead()
    return this.#cursor.after
  }

  /** @param isEnd no notification follows them. */
  endPage(
    entries: readonly { readonly text: string; readonly notification: StoredNotification }[],
    isEnd: boolean,
  ): void {
    const touched = this.#touched
    this.#touched = undefined
    for (const { text, notification } of entries) {
      const isOld = touched?.has(text) === true
      const known = this.#cells.get(text)
      if (known === undefined ? isOld : known.state !== 'passed') continue
      const cell = known ?? this.#know(text, notification)
      if (!isOld) this.#renew(cell, notification)
      this.#find(cell)
    }
    this.#cursor.passed(entries.at(-1)?.text, isEnd)
    for (const text of this.#left.splice(0)) this.#cursor.meet(text)
  }

  // ---- Transitions

  #know(text: string, notification: StoredNotification): KnownCell {
    const cell: KnownCell = {
      text,
      state: 'forgotten',
      notification,
      isMarked: false,
      attempts: 0,
      hasFailure: this.#isForgetful,
      isUnsure: this.#isForgetful,
      claim: undefined,
      fence: 0,
      isFound: false,
      age: { rank: 0, place: -1 },
      rank: 0,
      place: -1,
    }
    this.#cells.set(text, cell)
    return cell
  }

  #renew(cell: KnownCell, notification: StoredNotification): void {
    cell.notification = notification
    if (isPending(cell)) this.#ages.set(cell.age, notification.changeTs)
  }

  #forget(cell: KnownCell): void {
    this.#move(cell, 'forgotten', false)
    this.#cells.delete(cell.text)
  }

  #noFailure(cell: KnownCell): void {
    this.#failed(cell, 0)
    this.#move(cell, cell.state, false)
  }

  #failed(cell: KnownCell, attempts: number): void {
    cell.attempts = attempts
    cell.isUnsure = false
  }

  #park(cell: KnownCell): void {
    if (this.#mayRemember(cell)) {
      this.#move(cell, 'parked', true)
      return
    }
    this.#forget(cell)
    this.#isForgetful = true
    this.#unknownParked++
  }

  #lessParked(): void {
    if (this.#unknownParked > 0) this.#unknownParked--
  }

  #mayRemember({ state }: KnownCell): boolean {
    return isRemembered(state) || !this.#budget.remembersNoMore
  }

  #ready(cell: KnownCell, hasFailure = cell.hasFailure): void {
    if (cell.state === 'queued') {
      this.#move(cell, 'queued', hasFailure)
      return
    }
    const { fifo, fifoBytes } = this.#sizes
    if (this.#fifo.size < fifo && this.#fifoBytes + cell.text.length <= fifoBytes) {
      this.#move(cell, 'queued', hasFailure)
      this.#fifo.add(cell)
      this.#fifoBytes += cell.text.length
      return
    }
    this.#leave(cell.text)
    const isWorthIt = hasFailure && !(cell.isUnsure && this.#isForgetful)
    if (isWorthIt && this.#mayRemember(cell)) {
      this.#move(cell, 'passed', true)
    } else {
      this.#forget(cell)
      if (isWorthIt) this.#isForgetful = true
    }
  }

  /** The cursor will find the cell. The page that is being read does not count. */
  #leave(text: string): void {
    if (this.#touched === undefined) this.#cursor.meet(text)
    else this.#left.push(text)
  }

  #find(cell: KnownCell): void {
    this.#move(cell, 'queued')
    cell.isFound = true
    this.#found.add(cell)
  }

  #moveUntil(cell: KnownCell, state: 'claimed' | 'delayed', atMs: number, hasFailure = cell.hasFailure): void {
    this.#move(cell, state, hasFailure)
    this.#times.set(cell, atMs)
  }

  #move(cell: KnownCell, state: State, hasFailure = cell.hasFailure): void {
    if (cell.state === 'queued' && state !== 'queued') {
      if (cell.isFound) this.#found.delete(cell)
      else if (this.#fifo.delete(cell)) this.#fifoBytes -= cell.text.length
      cell.isFound = false
    }
    const budget = this.#budget
    budget.busy += Number(isBusy(state)) - Number(isBusy(cell.state))
    budget.remembered += Number(isRemembered(state)) - Number(isRemembered(cell.state))
    this.#counts[cell.state]--
    this.#counts[state]++
    if (state !== cell.state) {
      this.#times.delete(cell)
      if (cell.state === 'claimed') this.#count(cell.claim, -1)
      if (state === 'claimed') this.#count(cell.claim, 1)
      if (state !== 'claimed' && state !== 'withheld') cell.claim = undefined
    }
    cell.state = state
    cell.hasFailure = hasFailure
    if (!isPending(cell)) this.#ages.delete(cell.age)
    else if (cell.age.place === -1) this.#ages.set(cell.age, cell.notification.changeTs)
  }

  #count(claim: WorkerClaim | undefined, change: 1 | -1): void {
    if (claim === undefined) return
    const { worker } = claim
    const claimed = (this.#claimedBy.get(worker) ?? 0) + change
    if (claimed === 0) this.#claimedBy.delete(worker)
    else this.#claimedBy.set(worker, claimed)
  }
}

function stands(claim: WorkerClaim): boolean {
  return claim.cell.claim === claim
}

function isClaimed(claim: WorkerClaim): boolean {
  return stands(claim) && claim.cell.state === 'claimed'
}

function isPending({ state }: KnownCell): boolean {
  return state !== 'forgotten' && state !== 'parked'
}

function isBusy(state: State): boolean {
  return state === 'claimed' || state === 'withheld' || state === 'delayed'
}

function isRemembered(state: State): boolean {
  return state === 'parked' || state === 'passed'
}
