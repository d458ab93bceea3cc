import { keyText } from '../../bytes/key-text.js'
import { inParts } from '../../coordinator/in-parts.js'
import { KvError } from '../../errors/kv-error.js'
import { sleep } from '../../event-loop/sleep.js'
import { TimeSlicer } from '../../event-loop/time-slicer.js'
import { KEYS_PER_TURN, TIMER_MS_MAX } from '../../limits.js'
import type { CellListener, HandedOut, MarkedCells } from '../../store/marked-cells.js'
import { physicalMs, type Timestamp } from '../../timestamp.js'
import { Backfill, type BackfillSources, type BackfillStep } from '../backfill.js'
import { pagesOf } from '../cell-pages.js'
import type { ClaimOrder } from '../claim-order.js'
import { withValues } from '../claimed-values.js'
import type { ActiveObserver, ObserverCounts } from '../dirty-keys.js'
import { type FailedRun, failedRun, isParked, retried, skipped } from '../failed-run.js'
import { randomPlace } from '../random-place.js'
import { nameOfRegistration, registeredOf, type StoredObserver } from '../registration.js'
import type { Cell, CellChange, Failure, StoredNotification } from '../rules/cell.js'
import type { ClaimName, Notification, ObserverState, Release } from '../rules/observers-api.js'
import { Workers } from '../workers.js'
import type { CellBudget } from './cell-budget.js'
import { Dispatcher, type DispatcherSizes, type KnownFailure, type WorkerClaim } from './dispatcher.js'
import { PendingWalk } from './pending-walk.js'
import { type WaitingClaim, WaitingClaims } from './waiting-claims.js'

/** Notifications per page of the cursor. */
const PAGE = 512
const CHANGES_AT_A_TIME = 256
/** The cursor starts on one of this many pages. */
const PLACES_PAGES = 32
/** A cell whose failure cannot be written comes back after this long. */
const UNWRITTEN_MS = 1000
/** Shortest interval between two loads of forgotten failures. */
const REMEMBER_MS = 1000
/** How long `count()` waits for a fresh count before it leaves the previous one. */
const COUNT_WAIT_MS = 100

export interface MarkedObserverSources extends BackfillSources {
  readonly cells: MarkedCells
  readonly budget: CellBudget
  readonly sizes?: DispatcherSizes | undefined
}

/** Hands out the marked cells of one observer, takes them back, and times leases and delays. */
export class MarkedObserver implements ActiveObserver, CellListener {
  readonly id: Timestamp
  readonly backfill: Backfill
  /** There may be acknowledgements that a collection has not removed. */
  hasAcks = true
  readonly #sources: MarkedObserverSources
  #stored: StoredObserver
  readonly #dispatcher: Dispatcher
  readonly #waiting = new WaitingClaims()
  readonly #workers = new Workers()
  readonly #walk: PendingWalk
  /** Incremented by each load and unload. Reads begun under an earlier number are ignored. */
  #loads = 0
  #isLoaded = false
  /** Forgotten failures are not loaded again before this time. */
  #forgetsUntilMs = 0
  #loading: Promise<void> | undefined
  #filling: Promise<void> | undefined
  #servesSoon = false
  #timer: NodeJS.Timeout | undefined
  #timerAtMs = Number.POSITIVE_INFINITY
  #ended: { readonly error?: unknown } | undefined
  #acks = 0
  #conflicts = 0

  constructor(sources: MarkedObserverSources, stored: StoredObserver) {
    this.id = stored.id
    this.#sources = sources
    this.#stored = stored
    this.#dispatcher = new Dispatcher(sources.budget, sources.sizes)
    this.#walk = new PendingWalk(sources.cells, stored.id)
    this.backfill = new Backfill(sources, registeredOf(stored), {
      keysAtATime: CHANGES_AT_A_TIME,
      leaseMs: 0,
      mayRun: () => this.#ended === undefined && !this.#stored.isPaused,
      advance: (step) => this.#advance(step),
    })
  }

  get stored(): StoredObserver {
    return this.#stored
  }

  /** Call when the record is on disk. A pause answers waiting claims with nothing. */
  become(stored: StoredObserver): void {
    this.#stored = stored
    if (stored.isPaused) {
      this.#waiting.endAll()
    } else {
      this.backfill.run()
    }
  }

  async end(error?: unknown): Promise<void> {
    this.#ended = { error }
    this.#loads++
    clearTimeout(this.#timer)
    this.#waiting.endAll(error)
    await Promise.all([this.#walk.close(), this.#loading?.catch(() => {}), this.#filling])
    this.#dispatcher.reset()
  }

  // ---- Start

  /** Resolves when cells can be handed out. @throws KvError `storage_unavailable` */
  load(): Promise<void> {
    if (this.#isLoaded || this.#ended !== undefined) return Promise.resolve()
    this.#loading ??= this.#load(++this.#loads).finally(() => {
      this.#loading = undefined
    })
    return this.#loading
  }

  /**
   * Drops the state in memory: only the disk knows the notifications, and all claims are void. Waiting claims wait for `reload`.
   */
  unload(): void {
    this.#loads++
    this.#isLoaded = false
    this.hasAcks = true // A run that failed may have committed.
    this.#dispatcher.reset()
  }

  /** @throws KvError `storage_unavailable`, which also ends waiting claims. */
  async reload(): Promise<void> {
    await this.#loading?.catch(() => {}) // Its result is ignored.
    await this.load()
  }

  /** Loads forgotten failures when there may be room for them. Claims stay in force. */
  #remember(): void {
    const nowMs = this.#nowMs()
    if (!this.#isLoaded || !this.#dispatcher.mayRemember || nowMs < this.#forgetsUntilMs) return
    this.#forgetsUntilMs = nowMs + REMEMBER_MS
    this.#isLoaded = false
    this.load().catch(() => {}) // `load` answers the claims itself.
  }

  async #load(load: number): Promise<void> {
    this.#dispatcher.begin()
    try {
      await this.#loadFailures(load)
      const place = await this.#randomPlace(load)
      if (load !== this.#loads) return
      this.#dispatcher.startAt(place)
      this.#isLoaded = true
    } catch (error) {
      if (load === this.#loads) this.#waiting.endAll(error)
      throw error
    }
    this.#serve()
  }

  async #loadFailures(load: number): Promise<void> {
    const { store, cells } = this.#sources
    for await (const page of pagesOf((next) => cells.failures(this.id, next), CHANGES_AT_A_TIME)) {
      for (let keys = page.map(({ key }) => key); keys.length > 0 && load === this.#loads; ) {
        const changed = this.#dispatcher.beginRead()
        try {
          const read = await cells.read(this.id, keys)
          if (load !== this.#loads) return
          for (const { key, notification, failure } of read) {
            if (failure === undefined || changed.has(keyText(key))) continue
            if (notification === undefined && failure.parkedTs === 0) continue // The cell is clean.
            this.#dispatcher.add(keyText(key), knownFailure(failure, notification), store.time.steadyMs())
          }
        } finally {
          // Not earlier: a cell may change between its read and this point.
          if (load === this.#loads) this.#dispatcher.endRead()
        }
        keys = keys.filter((key) => changed.has(keyText(key)))
      }
      if (load !== this.#loads) return
    }
  }

  /** Picks a dirty cell at random, so that a cell that crashes the server is not the first after each start. */
  async #randomPlace(load: number): Promise<string | undefined> {
    const { cells, random } = this.#sources
    const isOver = (): boolean => load !== this.#loads
    const place = await randomPlace((page) => cells.notifications(this.id, page), {
      pages: PLACES_PAGES,
      random,
      isOver,
    })
    return place && keyText(place)
  }

  // ---- Claims

  get waiting(): number {
    return this.#waiting.size
  }

  claim({ waitMs, ...order }: ClaimOrder): Promise<Notification[]> {
    this.#seen(order.worker)
    return new Promise((resolve, reject) => {
      if (this.#ended?.error !== undefined) throw this.#ended.error
      if (this.#ended !== undefined || this.#stored.isPaused) return resolve([])
      this.#remember()
      const claim: WaitingClaim = { ...order, resolve, reject, rank: 0, place: -1 }
      this.#waiting.add(claim, this.#nowMs() + waitMs)
      this.#serve()
      this.#waiting.listen(claim)
    })
  }

  /** Answers waiting claims in order of arrival, as far as there are cells. */
  #serve(): void {
    if (this.#ended !== undefined) return
    const nowMs = this.#nowMs()
    this.#expire(this.#dispatcher.due(nowMs)) // Other observers need the room.
    if (!this.#isLoaded) {
      if (this.#waiting.size > 0) this.load().catch(() => {}) // `load` answers the claims itself.
      this.#schedule()
      return
    }
    for (let claim = this.#waiting.first; claim !== undefined; claim = this.#waiting.first) {
      const { worker, limit, leaseMs } = claim
      // A claim does not expire before it is answered.
      const { claims, isRefused } = this.#dispatcher.take({ worker, limit, leaseMs, nowMs: Number.POSITIVE_INFINITY })
      if (claims.length === 0 && !isRefused) break
      this.#waiting.delete(claim)
      if (claims.length > 0) void this.#handOut(claim, claims)
      else claim.reject(this.#tooMany())
    }
    if (this.#dispatcher.wantsPage) this.#fill()
    if (this.#filling === undefined) this.#waiting.endUntil(nowMs)
    this.#schedule()
  }

  #tooMany(): KvError {
    const text = `as many cells as the limit of ${this.#sources.budget.max} are claimed or delayed`
    return new KvError('overloaded', text, {})
  }

  /** Reads pages at the cursor until enough cells are found, or all are known. */
  #fill(): void {
    this.#filling ??= this.#readPages(this.#loads).then(
      () => {
        this.#filling = undefined
        this.#serve()
      },
      (error) => {
        this.#filling = undefined
        this.#waiting.endAll(error)
        this.#schedule() // The next claim tries again.
      },
    )
  }

  async #readPages(load: number): Promise<void> {
    const { cells } = this.#sources
    while (this.#dispatcher.wantsPage && load === this.#loads) {
      const after = this.#dispatcher.beginPage()
      try {
        const page = await cells.notifications(this.id, {
          after: after === undefined ? after : keyOfText(after),
          limit: PAGE,
        })
        if (load !== this.#loads) return
        const entries = page.map(({ key, notification }) => ({ text: keyText(key), notification }))
        this.#dispatcher.endPage(entries, page.length < PAGE)
      } catch (error) {
        if (load === this.#loads) this.#dispatcher.endRead()
        throw error
      }
      this.#serve()
    }
  }

  /** When no cell is left to hand out, the claim waits on. Never rejects. */
  async #handOut(claim: WaitingClaim, taken: readonly WorkerClaim[]): Promise<void> {
    try {
      const notifications = await this.#notifications(claim, taken)
      const isOver = this.#ended !== undefined || this.#stored.isPaused || claim.rank <= this.#nowMs()
      if (notifications === undefined && !isOver) {
        this.#waiting.add(claim, claim.rank)
        this.#waiting.listen(claim)
        this.#serveSoon()
      } else {
        claim.resolve(notifications ?? [])
      }
    } catch (error) {
      this.#putBack(taken)
      claim.reject(error)
    }
  }

  /**
   * Asks for timestamps and reads in one turn, so that no commit falls between the fences.
   * @returns undefined when the cells must not be handed out now.
   */
  async #notifications(asked: WaitingClaim, taken: readonly WorkerClaim[]): Promise<Notification[] | undefined> {
    const { store } = this.#sources
    const next = store.tso(taken.length)
    const last = typeof next === 'number' ? next : await next
    const claims = this.#fenced(taken, last - taken.length + 1)
    let notifications = claims.map(notificationOf)
    if (asked.values) {
      notifications = await withValues(store, notifications, last)
      this.#putBack(claims.splice(notifications.length))
    }
    if (this.#ended?.error !== undefined) throw this.#ended.error
    if (typeof asked.signal !== 'object' || !asked.signal.aborted) {
      // Leases start with the answer: a slow disk may have delayed the fences for longer than a claim lasts.
      const untilMs = this.#nowMs() + asked.leaseMs
      for (const claim of claims) this.#dispatcher.extend(claim, untilMs)
      this.#schedule()
      return notifications.length > 0 ? notifications : undefined
    }
    this.#putBack(claims)
    return []
  }

  /** Drops claims of changes above their fence: a client has committed ahead of the clock. */
  #fenced(taken: readonly WorkerClaim[], first: Timestamp): WorkerClaim[] {
    const { store } = this.#sources
    return taken.filter((claim, i) => {
      if (!this.#dispatcher.fenced(claim, first + i)) return false
      const { changeTs } = claim.cell.notification
      if (changeTs <= claim.fence) return true
      const aheadMs = Math.max(1, physicalMs(changeTs) + 1 - physicalMs(store.time.clock()))
      this.#dispatcher.release(claim, this.#nowMs() + aheadMs)
      return false
    })
  }

  #putBack(claims: readonly WorkerClaim[]): void {
    for (const claim of claims) this.#dispatcher.release(claim)
    this.#serveSoon()
  }

  async extend(claims: readonly ClaimName[], leaseMs: number | undefined): Promise<ClaimName[]> {
    const nowMs = this.#nowMs()
    const lost: ClaimName[] = []
    const slicer = new TimeSlicer()
    for (const name of claims) {
      const pause = slicer.next()
      if (pause !== undefined) await pause
      const claim = this.#dispatcher.claimed(keyText(name.key), name.fence)
      if (claim === undefined) {
        lost.push(name)
        continue
      }
      this.#dispatcher.extend(claim, nowMs + (leaseMs ?? claim.leaseMs))
      this.#seen(claim.worker)
    }
    this.#schedule()
    return lost
  }

  async release(releases: readonly Release[]): Promise<{ released: number; parked: Uint8Array[] }> {
    const nowMs = this.#nowMs()
    const failed: Failed[] = []
    let released = 0
    const slicer = new TimeSlicer()
    for (const { key, fence, error, retryAfterMs } of releases) {
      const pause = slicer.next()
      if (pause !== undefined) await pause
      const claim = this.#dispatcher.claimed(keyText(key), fence)
      if (claim === undefined) continue
      released++
      this.#seen(claim.worker)
      if (error === undefined) {
        this.#dispatcher.release(claim, retryAfterMs && nowMs + retryAfterMs)
      } else {
        this.#dispatcher.withhold(claim)
        failed.push({ claim, run: { error, retryAfterMs } })
      }
    }
    this.#serve()
    return { released, parked: await this.#fail(failed) }
  }

  /** Records failures of cells that are `withheld`. @returns the keys that are parked now. */
  async #fail(failed: readonly Failed[]): Promise<Uint8Array[]> {
    const parked: Uint8Array[] = []
    for (let at = 0; at < failed.length; at += CHANGES_AT_A_TIME) {
      try {
        parked.push(...(await this.#failSome(failed.slice(at, at + CHANGES_AT_A_TIME))))
      } catch (error) {
        for (const { claim } of failed.slice(at)) this.#dispatcher.failureUnwritten(claim, this.#nowMs() + UNWRITTEN_MS)
        this.#schedule()
        throw error
      }
    }
    return parked
  }

  async #failSome(failed: readonly Failed[]): Promise<Uint8Array[]> {
    const { cells, random } = this.#sources
    const keys = failed.map(({ claim }) => keyOfText(claim.cell.text))
    const nowMs = this.#nowMs()
    const outcomes = await cells.change(this.id, keys, (found, ts) => {
      const value = failed.map(({ claim, run }, i) => {
        const cell = found[i] as Cell
        if (!this.#dispatcher.decided(claim, (cell.failure?.parkedTs ?? 0) > 0)) return undefined
        return failedRun(cell, run, { options: this.#stored.options, nowMs, ts, random: random() })
      })
      return { value, changes: value.flatMap((outcome) => outcome?.change ?? []) }
    })
    const parked: Uint8Array[] = []
    for (const [i, outcome] of outcomes.entries()) {
      const { claim } = failed[i] as Failed
      const failure = outcome && knownFailure(outcome.failure, undefined)
      this.#dispatcher.failureWritten(claim, failure, this.#nowMs())
      if (failure?.isParked) parked.push(keys[i] as Uint8Array)
    }
    this.#serve()
    return parked
  }

  // ---- Cells

  async notify(keys: readonly Uint8Array[]): Promise<Timestamp> {
    let ts = 0
    for (const some of inParts(keys, KEYS_PER_TURN))
      ts = await this.#sources.cells.change(this.id, some, (cells, changeTs) => ({
        value: changeTs,
        changes: cells.map(({ key }) => ({ key, notification: { changeTs, kind: 'notified', depth: 0 } })),
      }))
    return ts
  }

  async parked(keys: readonly Uint8Array[]): Promise<{ key: Uint8Array; failure: Failure }[]> {
    return (await this.#sources.cells.read(this.id, keys)).filter(isParked)
  }

  retry(keys: readonly Uint8Array[]): Promise<number> {
    return this.#decideEach(keys, retried)
  }

  skip(keys: readonly Uint8Array[]): Promise<number> {
    return this.#decideEach(keys, skipped)
  }

  /** @returns the number of cells that were changed. */
  async #decideEach(
    keys: readonly Uint8Array[],
    decide: (cell: Cell, ts: Timestamp) => CellChange | undefined,
  ): Promise<number> {
    let count = 0
    for (const some of inParts(keys, CHANGES_AT_A_TIME))
      count += await this.#sources.cells.change(this.id, some, (cells, ts) => {
        const changes = cells.flatMap((cell) => decide(cell, ts) ?? [])
        return { value: changes.length, changes }
      })
    return count
  }

  /** Writes one batch while holding the registration: whoever holds it may replace or remove the record. */
  #advance({ keys, record, before, after }: BackfillStep): Promise<boolean> {
    const { store, cells } = this.#sources
    return store.system.hold([nameOfRegistration(this.#stored.name)], async () => {
      const present = await store.system.get(record)
      if (present === undefined || Buffer.compare(present, before) !== 0) return false
      return cells.change(this.id, keys, (found, changeTs) => {
        const clean = found.filter(({ notification }) => notification === undefined)
        const changes = clean.map(
          ({ key }): CellChange => ({ key, notification: { changeTs, kind: 'backfill', depth: 0 } }),
        )
        return { value: true, changes, extraRecords: [{ name: record, value: after }] }
      })
    })
  }

  // ---- Reports of the store

  handedOut(key: Uint8Array): HandedOut {
    return this.#isLoaded ? this.#dispatcher.handedOut(keyText(key)) : UNKNOWN // All claims are void.
  }

  marked(key: Uint8Array, notification: StoredNotification): void {
    this.#dispatcher.marked(keyText(key), notification)
    this.#serveSoon()
  }

  parkedNow(key: Uint8Array, { attempts, changeTs, kind, depth }: Failure): void {
    this.#dispatcher.parked(keyText(key), attempts, { changeTs, kind, depth })
  }

  acknowledged(key: Uint8Array, notification: StoredNotification | undefined): void {
    this.#acks++
    this.hasAcks = true
    this.#dispatcher.acknowledged(keyText(key), notification)
    if (notification !== undefined) this.#serveSoon()
  }

  conflicted(): void {
    this.#conflicts++
  }

  retried(key: Uint8Array, notification: StoredNotification): void {
    this.#dispatcher.retried(keyText(key), notification)
    this.#serveSoon()
  }

  skipped(key: Uint8Array): void {
    this.hasAcks = true
    this.#dispatcher.skipped(keyText(key))
  }

  /** Makes the count of parked cells exact again. */
  unparked(): void {
    this.#dispatcher.unparked()
  }

  // ---- Time

  #nowMs(): number {
    return this.#sources.store.time.steadyMs()
  }

  #seen(worker: string): void {
    this.#workers.seen(worker, this.#nowMs(), Date.now())
  }

  /** Waits for the end of the turn: the marks of one transaction arrive in one turn, and one claim gets all of them. */
  #serveSoon(): void {
    if (this.#waiting.size === 0 || this.#servesSoon) return
    this.#servesSoon = true
    queueMicrotask(() => {
      this.#servesSoon = false
      this.#serve()
    })
  }

  #schedule(): void {
    const waitMs = this.#isLoaded && this.#filling === undefined ? this.#waiting.nextMs : undefined
    const nextMs = Math.min(this.#dispatcher.nextMs ?? Infinity, waitMs ?? Infinity)
    if (nextMs >= this.#timerAtMs || this.#ended !== undefined) return
    clearTimeout(this.#timer)
    this.#timerAtMs = nextMs
    const delayMs = Math.min(Math.max(1, nextMs - this.#nowMs()), TIMER_MS_MAX)
    this.#timer = setTimeout(() => this.#onTime(), delayMs)
    this.#timer.unref()
  }

  #onTime(): void {
    this.#timerAtMs = Number.POSITIVE_INFINITY
    this.#serve()
  }

  #expire(claims: readonly WorkerClaim[]): void {
    if (claims.length === 0) return
    const { report } = this.#sources
    this.#fail(claims.map((claim) => ({ claim, run: { error: 'lease expired' } }))).catch(report)
  }

  // ---- State

  get counts(): ObserverCounts {
    const dispatcher = this.#dispatcher
    const pendingIsExact = this.#isExact
    const walked = pendingIsExact ? undefined : this.#walk.last
    return {
      pending: Math.max(dispatcher.pending, walked?.count ?? 0),
      pendingIsExact,
      claimed: dispatcher.count('claimed'),
      delayed: dispatcher.count('delayed'),
      parked: dispatcher.count('parked'),
      oldest: earlier(dispatcher.oldest, walked?.oldest ?? 0),
      acks: this.#acks,
      conflicts: this.#conflicts,
    }
  }

  get #isExact(): boolean {
    return this.#isLoaded && this.#dispatcher.knowsAll
  }

  get workers(): ObserverState['workers'] {
    return this.#workers.list(this.#dispatcher.claimedBy, this.#nowMs())
  }

  async count(): Promise<void> {
    this.#remember()
    await this.load().catch(() => {})
    await this.#filling
    await Promise.race([this.recount(), sleep(COUNT_WAIT_MS)])
  }

  async recount(): Promise<void> {
    if (!this.#isExact) await this.#walk.run()
  }
}

interface Failed {
  readonly claim: WorkerClaim
  readonly run: FailedRun
}

const UNKNOWN: HandedOut = { fence: 0, hasFailure: true }

function earlier(one: Timestamp, other: Timestamp): Timestamp {
  return one === 0 || other === 0 ? one || other : Math.min(one, other)
}

function keyOfText(text: string): Uint8Array {
  return Buffer.from(text, 'latin1')
}

function notificationOf({ cell: { text, notification, attempts }, fence }: WorkerClaim): Notification {
  return {
    key: keyOfText(text),
    fence,
    commitTs: notification.changeTs,
    kind: notification.kind,
    attempt: attempts + 1,
  }
}

function knownFailure(failure: Failure, notification: StoredNotification | undefined): KnownFailure {
  const { attempts, notBeforeMs, changeTs, kind, depth } = failure
  return {
    attempts,
    notBeforeMs,
    notification: notification ?? { changeTs, kind, depth },
    isParked: isParked({ notification, failure }),
  }
}
