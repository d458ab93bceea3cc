import fc from 'fast-check'
import { CellBudget } from '../../src/observers/marks/cell-budget.js'
import { Dispatcher, type KnownFailure, type WorkerClaim } from '../../src/observers/marks/dispatcher.js'
import type { StoredNotification } from '../../src/observers/rules/cell.js'

const KEYS = [...'abcdef']
const PAGE = 3
const LEASE_MS = 100
const ATTEMPTS_MAX = 3

/** Numbers pick among the keys, claims and failures that there are. */
export type Event =
  | { readonly on: 'mark' | 'mark too deep' | 'retry' | 'skip'; readonly pick: number; readonly isToldLater: boolean }
  | { readonly on: 'take'; readonly limit: number; readonly isFencedLater: boolean }
  | { readonly on: 'acknowledge'; readonly pick: number; readonly isClean: boolean; readonly isToldLater: boolean }
  /** A write that has landed is told; a claim gets its fence. */
  | { readonly on: 'tell' | 'fence'; readonly pick: number }
  | { readonly on: 'release'; readonly pick: number; readonly delayMs: number }
  | { readonly on: 'extend' | 'fail'; readonly pick: number }
  /** The outcome of the oldest failed run is decided, told and answered, or cannot be written. */
  | { readonly on: 'decide' | 'written' | 'not written' }
  | { readonly on: 'time'; readonly ms: number }
  | { readonly on: 'ask for page' | 'read page' | 'page' | 'page fails' }
  | { readonly on: 'restart'; readonly pick: number }

const pick = fc.nat({ max: KEYS.length - 1 })
const isToldLater = fc.boolean()
const isFencedLater = fc.nat({ max: 3 }).map((one) => one === 0)
const weighted = (weight: number, arbitrary: fc.Arbitrary<Event>) => ({ weight, arbitrary })
const plain = <K extends Event['on']>(...on: K[]) => fc.constantFrom(...on).map((each) => ({ on: each }) as Event)

export const histories: fc.Arbitrary<Event[]> = fc.array(
  fc.oneof(
    weighted(12, fc.record({ on: fc.constant('mark'), pick, isToldLater })),
    weighted(3, fc.record({ on: fc.constantFrom('mark too deep', 'retry', 'retry', 'skip'), pick, isToldLater })),
    weighted(6, fc.record({ on: fc.constant('take'), limit: fc.integer({ min: 1, max: 4 }), isFencedLater })),
    weighted(4, fc.record({ on: fc.constant('acknowledge'), pick, isClean: fc.boolean(), isToldLater })),
    weighted(6, fc.record({ on: fc.constantFrom('tell', 'tell', 'fence'), pick })),
    weighted(2, fc.record({ on: fc.constant('release'), pick, delayMs: fc.constantFrom(0, 0, 30) })),
    weighted(5, fc.record({ on: fc.constantFrom('fail', 'fail', 'fail', 'extend'), pick })),
    weighted(9, plain('decide', 'decide', 'decide', 'written', 'written', 'written', 'not written')),
    weighted(3, fc.record({ on: fc.constant('time'), ms: fc.constantFrom(1, 40, 120) })),
    weighted(9, plain('ask for page', 'read page', 'page', 'page', 'page fails')),
    weighted(1, fc.record({ on: fc.constant('restart'), pick })),
  ),
  { minLength: 1, maxLength: 80, size: 'max' },
)

interface FailedRun {
  readonly claim: WorkerClaim
  /** What is on disk now; null: the cell was clean. Absent before the decision. */
  outcome?: KnownFailure | null
  /** The latch of its row is free again. */
  isTold?: boolean
}

/**
 * The cells of one observer on disk and their claims, beside the dispatcher that is told of them. Every event holds it to:
 *
 * - while the latch of its row is free, the notification of a claimed cell is the one on disk, and no run has committed since its fence;
 * - a cell is handed out only while it is dirty, and no claim, delay or failure that is being written is in the way;
 * - when it says that it knows all dirty cells, it does, and the oldest of them;
 * - it may have forgotten that a cell has failed, or how long it is delayed, only while the budget is full, and never says that it has not;
 * - at rest every dirty cell is handed out, and the parked ones are counted after a restart.
 */
export class DispatchedCells {
  readonly budget
  readonly #sizes
  #dispatcher
  #nowMs = 0
  #ts = 0
  readonly #notifications = new Map<string, StoredNotification>()
  readonly #failures = new Map<string, KnownFailure>()
  readonly #claims = new Map<string, { readonly claim: WorkerClaim; untilMs: number }>()
  readonly #failed: FailedRun[] = []
  /** Writes that have landed and are not told yet, by key. They hold its latch. */
  readonly #untold = new Map<string, () => void>()
  readonly #unfenced: WorkerClaim[] = []
  /** There was no room for a failure. */
  #wasFull = false
  /** There was no room for a delay after the last start. */
  #isEarly = false
  /** When the last run committed. */
  readonly #committed = new Map<string, number>()
  /** The page that is being read. */
  #page:
    | {
        readonly after: string | undefined
        found?: { readonly text: string; readonly notification: StoredNotification }[]
      }
    | undefined

  constructor({ fifo, found, claimsMax }: Record<'fifo' | 'found' | 'claimsMax', number>) {
    this.budget = new CellBudget(claimsMax)
    this.#sizes = { fifo, found, fifoBytes: 1000 }
    this.#dispatcher = new Dispatcher(this.budget, this.#sizes)
    this.#restart(0)
  }

  run(events: readonly Event[]): void {
    for (const event of events) {
      this.#happen(event)
      this.#check()
    }
    this.#comeToRest()
  }

  #happen(event: Event): unknown {
    switch (event.on) {
      case 'mark':
        return this.#mark(KEYS[event.pick] as string, event.isToldLater)
      case 'mark too deep':
        return this.#park(KEYS[event.pick] as string, event.isToldLater)
      case 'retry':
      case 'skip':
        return this.#unpark(event)
      case 'take':
        return this.#take(event.limit, event.isFencedLater)
      case 'fence':
        return this.#fence(event.pick)
      case 'acknowledge':
        return this.#acknowledge(event)
      case 'tell':
        return this.#tell([...this.#untold.keys()][event.pick % this.#untold.size])
      case 'release':
        return this.#withClaim(event.pick, (claim) => {
          this.#claims.delete(claim.cell.text)
          this.#dispatcher.release(claim, event.delayMs === 0 ? undefined : this.#nowMs + event.delayMs)
        })
      case 'extend':
        return this.#withClaim(event.pick, (claim) => {
          this.#claims.set(claim.cell.text, { claim, untilMs: this.#nowMs + LEASE_MS })
          this.#dispatcher.extend(claim, this.#nowMs + LEASE_MS)
        })
      case 'fail':
        return this.#withClaim(event.pick, (claim) => {
          this.#claims.delete(claim.cell.text)
          this.#dispatcher.withhold(claim)
          this.#failed.push({ claim })
        })
      case 'decide':
        return this.#decide()
      case 'written':
      case 'not written':
        return this.#writeFailure(event.on === 'written')
      case 'time':
        return this.#pass(event.ms)
      case 'ask for page':
        if (this.#page === undefined && this.#dispatcher.wantsPage) this.#page = { after: this.#dispatcher.beginPage() }
        return
      case 'read page':
        if (this.#page !== undefined) this.#page.found ??= this.#notificationsAfter(this.#page.after)
        return
      case 'page':
        return this.#endPage()
      case 'page fails':
        if (this.#page === undefined) return
        this.#page = undefined
        return this.#dispatcher.endRead()
      case 'restart':
        return this.#restart(event.pick)
    }
  }

  // ---- Writes, under the latch of their row

  #isHeld(text: string): boolean {
    const isHeld = ({ claim, outcome, isTold }: FailedRun) =>
      claim.cell.text === text && outcome !== undefined && !isTold
    return this.#untold.has(text) || this.#failed.some(isHeld)
  }

  #written(text: string, isToldLater: boolean, tell: () => void): void {
    this.#untold.set(text, tell)
    if (!isToldLater) this.#tell(text)
  }

  #tell(text: string | undefined): void {
    if (text === undefined) return
    this.#untold.get(text)?.()
    this.#untold.delete(text)
  }

  #mark(text: string, isToldLater: boolean): void {
    if (this.#isHeld(text)) return
    const notification: StoredNotification = { changeTs: ++this.#ts, kind: 'put', depth: 0 }
    this.#notifications.set(text, notification)
    this.#written(text, isToldLater, () => this.#dispatcher.marked(text, notification))
  }

  #park(text: string, isToldLater: boolean): void {
    if (this.#isHeld(text)) return
    const notification: StoredNotification = { changeTs: ++this.#ts, kind: 'put', depth: 9 }
    this.#notifications.delete(text)
    this.#failures.set(text, { attempts: 0, notBeforeMs: 0, notification, isParked: true })
    this.#written(text, isToldLater, () => {
      this.#claims.delete(text)
      this.#dispatcher.parked(text, 0, notification)
    })
  }

  #unpark({
    on,
    pick,
    isToldLater,
  }: Event & { on: 'retry' | 'skip' | string; pick: number; isToldLater: boolean }): void {
    const parked = [...this.#failures].filter(([text, { isParked }]) => isParked && !this.#notifications.has(text))
    const [text, failure] = parked[pick % parked.length] ?? []
    if (text === undefined || failure === undefined || this.#isHeld(text)) return
    this.#failures.delete(text)
    if (on === 'retry') this.#notifications.set(text, failure.notification)
    this.#written(text, isToldLater, () => {
      if (on === 'retry') this.#dispatcher.retried(text, failure.notification)
      else this.#dispatcher.skipped(text)
    })
  }

  /** By a claim, or by anybody who invents one. */
  #acknowledge({ pick, isClean, isToldLater }: { pick: number; isClean: boolean; isToldLater: boolean }): void {
    const text = [...this.#claims.keys()][pick] ?? (KEYS[pick] as string)
    const notification = this.#notifications.get(text)
    if (notification === undefined || this.#isHeld(text)) return
    if (isClean) this.#notifications.delete(text)
    this.#failures.delete(text)
    this.#committed.set(text, ++this.#ts)
    this.#written(text, isToldLater, () => {
      this.#claims.delete(text)
      this.#dispatcher.acknowledged(text, isClean ? undefined : notification)
    })
  }

  // ---- Claims

  #take(limit: number, isFencedLater: boolean): void {
    const take = { limit, worker: `w${limit}`, leaseMs: LEASE_MS, nowMs: this.#nowMs }
    for (const claim of this.#dispatcher.take(take).claims) {
      const { text } = claim.cell
      if (this.#claims.has(text)) throw new Error(`${text} is claimed already`)
      if (this.#failed.some((failed) => failed.claim === claim))
        throw new Error(`the failure of ${text} is being written`)
      if (!this.#isHeld(text)) this.#checkTaken(claim)
      this.#claims.set(text, { claim, untilMs: this.#nowMs + LEASE_MS })
      this.#unfenced.push(claim)
      if (!isFencedLater) this.#fence(this.#unfenced.length - 1)
    }
  }

  #checkTaken({ cell: { text, attempts } }: WorkerClaim): void {
    const failure = this.#failures.get(text)
    if (!this.#notifications.has(text)) throw new Error(`${text} is clean`)
    if (failure !== undefined && failure.notBeforeMs > this.#nowMs && !this.#isEarly)
      throw new Error(`${text} is delayed`)
    if (attempts !== (failure?.attempts ?? 0) && !(attempts === 0 && this.#wasFull))
      throw new Error(`${text} has ${failure?.attempts} attempts, not ${attempts}`)
  }

  #fence(which: number): void {
    const [claim] = this.#unfenced.splice(which % this.#unfenced.length, 1)
    if (claim !== undefined) this.#dispatcher.fenced(claim, ++this.#ts)
  }

  #withClaim(which: number, body: (claim: WorkerClaim) => void): void {
    const [text, claimed] = [...this.#claims][which % this.#claims.size] ?? []
    if (text === undefined || claimed === undefined) return
    const claim = this.#dispatcher.claimed(text, claimed.claim.fence)
    if (claim !== undefined) body(claim)
    else if (!this.#unfenced.includes(claimed.claim)) throw new Error(`the claim of ${text} is lost`)
  }

  #decide(): void {
    const failed = this.#failed.find(({ outcome }) => outcome === undefined)
    if (failed === undefined || this.#isHeld(failed.claim.cell.text)) return
    const { claim } = failed
    const { cell } = claim
    const before = this.#failures.get(cell.text)
    const isCurrent = this.#dispatcher.decided(claim, before?.isParked === true)
    const notification = this.#notifications.get(cell.text)
    if (notification === undefined || !isCurrent) {
      failed.outcome = null
      return
    }
    const attempts = (before?.attempts ?? 0) + 1
    const isParked = attempts >= ATTEMPTS_MAX
    failed.outcome = { attempts, notBeforeMs: isParked ? 0 : this.#nowMs + 20 * attempts, notification, isParked }
    this.#failures.set(cell.text, failed.outcome)
    if (isParked) this.#notifications.delete(cell.text)
  }

  #writeFailure(isWritten: boolean): void {
    const at = this.#failed.findIndex(({ outcome }) => (outcome !== undefined) === isWritten)
    const failed = this.#failed[at]
    if (failed === undefined) return
    const { claim, outcome, isTold } = failed
    if (outcome !== undefined && !isTold) {
      if (outcome?.isParked) this.#dispatcher.parked(claim.cell.text, outcome.attempts, outcome.notification)
      failed.isTold = true
      return
    }
    this.#failed.splice(at, 1)
    if (isWritten) this.#dispatcher.failureWritten(claim, outcome ?? undefined, this.#nowMs)
    else this.#dispatcher.failureUnwritten(claim, this.#nowMs + 50)
  }

  #pass(ms: number): void {
    this.#nowMs += ms
    for (const claim of this.#dispatcher.due(this.#nowMs)) {
      const { text } = claim.cell
      const claimed = this.#claims.get(text)
      if (claimed?.claim !== claim || claimed.untilMs > this.#nowMs) throw new Error(`the lease of ${text} is not over`)
      this.#claims.delete(text)
      this.#failed.push({ claim })
    }
    for (const [text, { untilMs }] of this.#claims)
      if (untilMs <= this.#nowMs) throw new Error(`the lease of ${text} goes on`)
  }

  #notificationsAfter(after: string | undefined): { text: string; notification: StoredNotification }[] {
    return [...this.#notifications]
      .filter(([text]) => after === undefined || text > after)
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .slice(0, PAGE)
      .map(([text, notification]) => ({ text, notification }))
  }

  #endPage(): void {
    if (this.#page === undefined) return
    const found = this.#page.found ?? this.#notificationsAfter(this.#page.after)
    this.#page = undefined
    this.#dispatcher.endPage(found, found.length < PAGE)
  }

  #restart(place: number): void {
    this.#page = undefined
    this.#claims.clear()
    this.#failed.length = 0
    this.#unfenced.length = 0
    this.#dispatcher.reset()
    const { busy, remembered } = this.budget
    if (busy + remembered !== 0) throw new Error(`${busy + remembered} cells are left in the budget`)
    this.#isEarly = false
    for (const [text, failure] of this.#failures) {
      this.#isEarly ||= this.budget.isFull
      const notification = this.#notifications.get(text)
      const known = {
        ...failure,
        notification: notification ?? failure.notification,
        isParked: failure.isParked && notification === undefined,
      }
      this.#dispatcher.add(text, known, this.#nowMs)
    }
    this.#dispatcher.startAt([...this.#notifications.keys()].sort()[place])
    const parked = [...this.#failures].filter(([text, { isParked }]) => isParked && !this.#notifications.has(text))
    if (this.#dispatcher.count('parked') !== parked.length) throw new Error(`not ${parked.length} cells are parked`)
  }

  #check(): void {
    const { busy, remembered, max } = this.budget
    this.#wasFull ||= this.budget.remembersNoMore
    if (busy > max || remembered > max) throw new Error(`${busy} and ${remembered} cells are in the budget of ${max}`)
    for (const text of KEYS) if (!this.#isHeld(text)) this.#checkClaim(text)
    const { knowsAll, pending, oldest, claimedBy } = this.#dispatcher
    const claimed = [...claimedBy.values()].reduce((sum, count) => sum + count, 0)
    if (claimed !== this.#claims.size) throw new Error(`${claimed} claims by worker, not ${this.#claims.size}`)
    if (!knowsAll || this.#untold.size > 0 || this.#failed.some(({ outcome }) => outcome !== undefined)) return
    const clean = this.#failed.filter(
      ({ claim }) => claim.cell.claim === claim && !this.#notifications.has(claim.cell.text),
    )
    if (pending !== this.#notifications.size + clean.length)
      throw new Error(`knows ${pending} dirty cells, not ${this.#notifications.size}`)
    const first = Math.min(...[...this.#notifications.values()].map(({ changeTs }) => changeTs))
    if (clean.length === 0 && oldest !== (this.#notifications.size === 0 ? 0 : first))
      throw new Error(`${oldest} is the oldest change, not ${first}`)
  }

  #checkClaim(text: string): void {
    const { fence, notification, hasFailure } = this.#dispatcher.handedOut(text)
    if (!hasFailure && this.#failures.has(text)) throw new Error(`${text} has failed`)
    if (notification === undefined) return
    if (notification !== this.#notifications.get(text)) throw new Error(`${text} has another entry on disk`)
    if (fence <= (this.#committed.get(text) ?? 0)) throw new Error(`a run of ${text} has committed since the fence`)
  }

  #comeToRest(): void {
    for (const text of KEYS) this.#tell(text)
    for (let i = 0; i < 200 && (this.#notifications.size > 0 || !this.#dispatcher.knowsAll); i++) {
      for (const on of ['page', 'ask for page', 'page', 'decide', 'written', 'written'] as const) this.#happen({ on })
      this.#pass(30)
      this.#take(100, false)
      this.#check()
      for (const text of [...this.#claims.keys()]) {
        this.#notifications.delete(text)
        this.#failures.delete(text)
        this.#claims.delete(text)
        this.#dispatcher.acknowledged(text, undefined)
      }
    }
    if (this.#notifications.size > 0) throw new Error(`${[...this.#notifications.keys()]} are forgotten`)
    if (!this.#dispatcher.knowsAll) throw new Error('the cursor goes round for ever')
  }
}
