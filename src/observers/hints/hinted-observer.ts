import { keyText } from '../../bytes/key-text.js'
import { inParts } from '../../coordinator/in-parts.js'
import { KvError } from '../../errors/kv-error.js'
import { type LazySignal, signalOf } from '../../event-loop/lazy-signal.js'
import { onAbort } from '../../event-loop/on-abort.js'
import { blocksRead } from '../../percolator/actions/get.js'
import type { PrewriteMutation } from '../../percolator/api.js'
import { lockInfo } from '../../percolator/lock-info.js'
import { isVisible } from '../../percolator/write.js'
import type { HintedCells } from '../../store/hinted-cells.js'
import { physicalMs, TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import { Backfill, type BackfillSources, type BackfillStep } from '../backfill.js'
import { pagesOf } from '../cell-pages.js'
import type { ClaimOrder } from '../claim-order.js'
import { mayHaveExpired, withValues } from '../claimed-values.js'
import type { ActiveObserver, ObserverCounts } from '../dirty-keys.js'
import { failedRun } from '../failed-run.js'
import { randomPlace } from '../random-place.js'
import { registeredOf, type StoredObserver } from '../registration.js'
import type { Failure, MarkKind } from '../rules/cell.js'
import { encodeAckTs } from '../rules/codec/cell-key.js'
import {
  type FoundCell,
  type HintedCell,
  isStill,
  locksBelow,
  type StoredClaim,
  uncovered,
} from '../rules/hinted-cell.js'
import type { RegisteredObserver } from '../rules/observer.js'
import type { ClaimName, Notification, ObserverState, Release } from '../rules/observers-api.js'
import { Workers } from '../workers.js'
import { forgetClean, unpark } from './cleaning.js'
import { notification } from './effects-as-rows.js'
import { isParkedCell, nextStep } from './next-step.js'

const PAGE = 512
/** A walk begins on one of this many pages. */
const PLACES_PAGES = 4
/** Cells that a claim looks at concurrently. */
const CELLS_AT_A_TIME = 64
/** Pause between two looks for hints while there are none. A hint written by this process ends it. */
const POLL_MS_MIN = 20
const POLL_MS_MAX = 250
/** A cell that cannot be handed out is not looked at again for this long. */
const REST_MS = 20
const RESTING_MAX = 4096
/** Interval between looks for expired versions. */
const DUE_MS = 500
/** After an empty round, waiting claims start no new round for this long. */
const EMPTY_MS = 50
/** Concurrent transactions of the observer itself. */
const COMMITS_AT_ONCE = 32
const BACKFILLED_AT_A_TIME = 128
const BACKFILL_LEASE_MS = 10_000
/** Attempts to change a claim that others change at the same time. */
const TRIES_MAX = 5
/** A count is reused for this long. */
const FRESH_MS = 10_000
const COUNTED_MAX = 100_000

export interface HintedObserverSources extends BackfillSources {
  readonly cells: HintedCells
  /** Commits a transaction of one row. @returns its commit_ts. */
  readonly commit: (mutationAt: (startTs: Timestamp) => PrewriteMutation) => Promise<Timestamp>
  /** Waits until notifications count, that is until the clock has passed `sinceTs`. */
  readonly inForce: (observer: RegisteredObserver) => Promise<void>
}

interface Claimed {
  readonly notification: Notification
  readonly cell: HintedCell
}

const NOTHING = { pending: 0, claimed: 0, delayed: 0, parked: 0, oldest: 0 }
const NOBODY: ReadonlyMap<string, number> = new Map()

/**
 * One observer on one of several servers: walks over the hints from a random place, looks at the cells, and claims them in the
 * table. Two servers may look at one cell; one of them gets it.
 */
export class HintedObserver implements ActiveObserver {
  readonly backfill: Backfill
  readonly #sources: HintedObserverSources
  #stored: StoredObserver
  #observer: RegisteredObserver
  /** Hinted cells that looked unclaimed, in random order. */
  #pool: FoundCell[] = []
  /** Keys of the cells that this process looks at or changes now. */
  readonly #busy = new Set<string>()
  /** By `elapsedMs`: until when each cell is left alone. */
  readonly #resting = new Map<string, number>()
  /** Fences of runs that this process has committed and whose claims are not removed yet. */
  readonly #over = new Map<string, Timestamp>()
  #place: Uint8Array | undefined
  #hasPlace = false
  #filling: Promise<boolean> | undefined
  #emptyMs = Number.NEGATIVE_INFINITY
  #dueMs = Number.NEGATIVE_INFINITY
  readonly #sleepers = new Set<() => void>()
  /** Number of calls of `wake`. */
  #wakes = 0
  #ended: { readonly error?: unknown } | undefined
  readonly #workers = new Workers()
  #counts = NOTHING
  #claimedBy = NOBODY
  #countedMs = Number.NEGATIVE_INFINITY
  #counting: Promise<void> | undefined
  acks = 0
  conflicts = 0

  constructor(sources: HintedObserverSources, stored: StoredObserver) {
    this.#sources = sources
    this.#stored = stored
    this.#observer = registeredOf(stored)
    this.backfill = new Backfill(sources, this.#observer, {
      keysAtATime: BACKFILLED_AT_A_TIME,
      leaseMs: BACKFILL_LEASE_MS,
      mayRun: () => this.#ended === undefined && !this.#stored.isPaused,
      advance: (step) => this.#advance(step),
    })
  }

  get stored(): StoredObserver {
    return this.#stored
  }
  get observer(): RegisteredObserver {
    return this.#observer
  }
  get id(): Timestamp {
    return this.#observer.id
  }
  get waiting(): number {
    return this.#sleepers.size
  }

  become(stored: StoredObserver): void {
    const isPausedNow = stored.isPaused && !this.#stored.isPaused
    this.#stored = stored
    this.#observer = registeredOf(stored)
    if (isPausedNow) this.wake()
  }

  async end(error?: unknown): Promise<void> {
    this.#ended = { error }
    this.wake()
  }

  /** Wakes waiting claims: there may be something to hand out. */
  wake(): void {
    this.#wakes++
    this.#emptyMs = Number.NEGATIVE_INFINITY
    for (const wake of this.#sleepers) wake()
  }

  /** A run has committed. Its claim ends here, before its record is removed. */
  acknowledged(key: Uint8Array, fence: Timestamp): void {
    this.acks++
    this.#over.set(keyText(key), fence)
  }

  takenBack(key: Uint8Array, fence: Timestamp): void {
    const text = keyText(key)
    if (this.#over.get(text) === fence) this.#over.delete(text)
  }

  // ---- Claims

  async claim(order: ClaimOrder): Promise<Notification[]> {
    const { store, cells } = this.#sources
    this.#seen(order.worker)
    const beganMs = store.time.elapsedMs()
    const untilMs = beganMs + order.waitMs
    for (let pollMs = POLL_MS_MIN; ; pollMs = Math.min(POLL_MS_MAX, pollMs * 1.5)) {
      if (this.#ended?.error !== undefined) throw this.#ended.error
      if (this.#ended !== undefined || this.#stored.isPaused) return []
      const wakes = this.#wakes
      const found = await this.#take(order)
      if (isAborted(order.signal)) {
        await this.release(found)
        return []
      }
      const leftMs = untilMs - store.time.elapsedMs()
      if (found.length > 0 || leftMs <= 0) return found
      const signal = signalOf(order.signal)
      if (signal?.aborted) return []
      const restMs = pollMs * (0.5 + this.#sources.random()) * cells.patience(this.id, untilMs - leftMs - beganMs)
      if (wakes === this.#wakes) await this.#sleep(Math.min(leftMs, restMs), signal)
    }
  }

  #sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        clearTimeout(timer)
        unlisten()
        this.#sleepers.delete(wake)
        resolve()
      }
      const timer = setTimeout(wake, ms)
      const unlisten = onAbort(signal, wake)
      this.#sleepers.add(wake)
    })
  }

  async #take(order: ClaimOrder): Promise<Notification[]> {
    const taken: Notification[] = []
    try {
      while (taken.length < order.limit) {
        const some = this.#draw(Math.min(CELLS_AT_A_TIME, order.limit - taken.length))
        if (some.length > 0) taken.push(...(await this.#handOut(order, some)))
        else if (!(await this.#fill(order.waitMs === 0))) break
      }
    } catch (error) {
      if (taken.length === 0) throw error // Claimed cells must not be lost.
    }
    return taken
  }

  #draw(count: number): FoundCell[] {
    const some: FoundCell[] = []
    while (some.length < count) {
      const cell = this.#pool.pop()
      if (cell === undefined) break
      const text = keyText(cell.key)
      if (this.#busy.has(text)) continue
      this.#busy.add(text)
      some.push(cell)
    }
    return some.sort((a, b) => Buffer.compare(a.key, b.key))
  }

  /** @param isNow the round must begin after this call. @returns false when a whole round has found nothing. */
  async #fill(isNow: boolean): Promise<boolean> {
    if (isNow && this.#filling !== undefined && (await this.#filling)) return true
    if (!isNow && this.#sources.store.time.elapsedMs() - this.#emptyMs < EMPTY_MS) return false
    this.#filling ??= this.#walk().finally(() => {
      this.#filling = undefined
    })
    return this.#filling
  }

  async #walk(): Promise<boolean> {
    const { store, cells } = this.#sources
    const wakes = this.#wakes
    await this.#hintDue()
    if (!this.#hasPlace) {
      const { random } = this.#sources
      this.#place = await randomPlace((page) => cells.hinted(this.id, page), { pages: PLACES_PAGES, random })
      this.#hasPlace = true
    }
    for (let isLastRound = this.#place === undefined; ; ) {
      const page = await cells.hinted(this.id, { after: this.#place, limit: PAGE })
      const nowMs = physicalMs(store.time.clock())
      const free = page.filter((cell) => this.#isFree(cell, nowMs))
      const isEnd = page.length < PAGE
      this.#place = isEnd ? undefined : page.at(-1)?.key
      if (free.length > 0) {
        this.#pool = shuffled(free, this.#sources.random)
        return true
      }
      if (isEnd && isLastRound) {
        if (wakes === this.#wakes) this.#emptyMs = store.time.elapsedMs()
        return false
      }
      isLastRound ||= isEnd
    }
  }

  async #hintDue(): Promise<void> {
    const { store, cells } = this.#sources
    if (store.time.elapsedMs() - this.#dueMs < DUE_MS) return
    this.#dueMs = store.time.elapsedMs()
    await cells.hintDue(this.id, store.time.clock())
  }

  #isFree({ key, claim }: FoundCell, nowMs: number): boolean {
    const text = keyText(key)
    if (this.#busy.has(text)) return false
    const isClaimed = claim !== undefined && claim.untilMs > nowMs
    const isOver = claim !== undefined && claim.fence !== 0 && claim.fence <= (this.#over.get(text) ?? 0)
    if (isClaimed && !isOver) return false
    const restsUntil = this.#resting.get(text)
    if (restsUntil === undefined) return true
    if (restsUntil > this.#sources.store.time.elapsedMs()) return false
    this.#resting.delete(text)
    return true
  }

  async #handOut(order: ClaimOrder, hinted: readonly FoundCell[]): Promise<Notification[]> {
    try {
      return await this.#claimOf(order, hinted)
    } finally {
      for (const { key } of hinted) this.#busy.delete(keyText(key))
    }
  }

  async #claimOf(order: ClaimOrder, hinted: readonly FoundCell[]): Promise<Notification[]> {
    const { store, cells } = this.#sources
    const last = await store.tso(hinted.length)
    const looks = await cells.look(
      this.id,
      hinted.map(({ key }) => key),
      last,
    )
    const claimed: Claimed[] = []
    const settled = await Promise.allSettled(
      looks.map(async (cell, i) => {
        const fence = last - hinted.length + 1 + i
        const unlocked = await this.#unlocked(cell, last)
        const one = unlocked && (await this.#step(order, hinted[i] as FoundCell, unlocked, fence, last))
        if (one === 'wait') this.#rest(cell.key)
        else if (one !== undefined) claimed.push(one)
      }),
    )
    const failed = settled.find((each) => each.status === 'rejected')
    if (failed !== undefined && claimed.length === 0) throw failed.reason // Claimed cells must not be lost.
    claimed.sort((a, b) => a.notification.fence - b.notification.fence)
    if (!order.values) return claimed.map(({ notification }) => notification)
    return this.#withValues(claimed, last)
  }

  #rest(key: Uint8Array): void {
    if (this.#resting.size >= RESTING_MAX) this.#resting.clear()
    this.#resting.set(keyText(key), this.#sources.store.time.elapsedMs() + REST_MS)
  }

  /** Resolves the locks of finished transactions and reads the cell again if there were any. */
  async #unlocked(cell: HintedCell, ts: Timestamp): Promise<HintedCell | undefined> {
    const { cells, resolver, store } = this.#sources
    const locks = locksBelow(cell, ts, 0)
    const { ackKey, ackLock } = cell
    // A run is over with its primary, though this lock is committed after its answer, or by nobody. A living run's lock stays.
    if (ackLock !== undefined) locks.push(lockInfo(ackKey, ackLock))
    // Locks of living transactions stay. Changes committed before them are uncovered all the same.
    const areGone = await resolver.resolve(locks, store.now()).catch((error: unknown) => {
      if (!(error instanceof KvError)) throw error
      // The notification was committed and covered meanwhile. Otherwise the lock stays for now, and the next look meets it.
      return error.code === 'txn_lock_not_found'
    })
    if (locks.length === 0 || !areGone) return cell
    return (await cells.look(this.id, [cell.key], ts))[0]
  }

  async #step(
    order: ClaimOrder,
    hinted: FoundCell,
    cell: HintedCell,
    fence: Timestamp,
    ts: Timestamp,
  ): Promise<Claimed | 'wait' | undefined> {
    const { cells } = this.#sources
    const step = nextStep(cell, this.#observer, fence, ts)
    switch (step.kind) {
      case 'wait':
        return 'wait'
      case 'forget':
        await forgetClean(cells, this.id, hinted, cell, ts)
        return undefined
      case 'failed':
        await this.#fail(hinted, cell, { error: 'lease expired' }, ts)
        return undefined
      case 'too deep': {
        const error = `the depth ${step.notification.depth} of the notification is above max_depth ${this.#observer.maxDepth}`
        const failure: Failure = { attempts: 0, notBeforeMs: 0, error, parkedTs: ts, ...step.notification }
        if ((await cells.replaceFailure(this.id, cell, failure)) && isStill(cell))
          await forgetClean(cells, this.id, hinted, cell, ts)
        return undefined
      }
      case 'claim': {
        const { worker, leaseMs } = order
        const claim: StoredClaim = { fence, untilMs: physicalMs(ts) + leaseMs, worker, leaseMs }
        const { key } = cell
        if ((await cells.claim(this.id, cell, claim)) === undefined) {
          // Its claim was over, and its run, which was answered, has removed it meanwhile. Otherwise another server has it.
          const again = cell.claim && (await cells.look(this.id, [key], ts))[0]
          return again === undefined || again.claim !== undefined ? 'wait' : this.#step(order, hinted, again, fence, ts)
        }
        const { changeTs: commitTs, kind } = step.notification
        return { notification: { key, fence, commitTs, kind, attempt: step.attempt }, cell }
      }
    }
  }

  /** @returns whether the cell is parked now; undefined: another server has changed the claim. */
  async #fail(
    hinted: FoundCell,
    cell: HintedCell,
    run: { readonly error: string; readonly retryAfterMs?: number | undefined },
    ts: Timestamp,
  ): Promise<boolean | undefined> {
    const { cells, random } = this.#sources
    const { key, failure: before, claim } = cell
    const nowMs = physicalMs(ts)
    const notification = uncovered(cell, this.#observer, TIMESTAMP_MAX, ts)
    const context = { options: this.#stored.options, nowMs, ts, random: random() }
    const failed = failedRun({ key, notification, ack: undefined, failure: before }, run, context)
    const untilMs = failed === undefined ? nowMs : Math.max(nowMs, failed.failure.notBeforeMs)
    const left: StoredClaim = { fence: 0, untilMs, worker: '', leaseMs: 0 }
    if ((await cells.claim(this.id, { key, claim }, left)) === undefined) return undefined
    if (failed === undefined) return false
    if (!(await cells.replaceFailure(this.id, cell, failed.failure))) return false
    const isParked = failed.failure.parkedTs > 0
    if (isParked && isStill(cell)) await forgetClean(cells, this.id, hinted, cell, ts)
    return isParked
  }

  /** The values may end the list early; cells without an answer become ready again. */
  async #withValues(claimed: readonly Claimed[], ts: Timestamp): Promise<Notification[]> {
    if (claimed.every(({ cell: { seen } }) => seen?.type !== 'put' || seen.shortValue !== undefined))
      return claimed.map(({ notification, cell: { key, lock, seen } }) => {
        if (lock !== undefined && blocksRead(lock, key, ts)) return notification
        const value = seen !== undefined && isVisible(seen, ts) ? seen.shortValue : undefined
        if (value !== undefined) return { ...notification, found: true, value }
        const absent = { ...notification, found: false }
        return mayHaveExpired(absent) && seen?.type === 'put' ? { ...absent, old: seen.shortValue } : absent
      })
    const notifications = claimed.map(({ notification }) => notification)
    try {
      const valued = await withValues(this.#sources.store, notifications, ts)
      await this.release(notifications.slice(valued.length))
      return valued
    } catch (error) {
      await this.release(notifications).catch(() => {})
      throw error
    }
  }

  async extend(claims: readonly ClaimName[], leaseMs: number | undefined): Promise<ClaimName[]> {
    const lost: ClaimName[] = []
    await this.#changing(claims, async ({ name, cell, ts }) => {
      const { claim } = cell
      if (claim === undefined || claim.fence !== name.fence) {
        lost.push(name)
        return true
      }
      this.#seen(claim.worker)
      const longer = { ...claim, untilMs: physicalMs(ts) + (leaseMs ?? claim.leaseMs) }
      return (await this.#sources.cells.claim(this.id, cell, longer)) !== undefined
    })
    return lost
  }

  async release(releases: readonly Release[]): Promise<{ released: number; parked: Uint8Array[] }> {
    const parked: Uint8Array[] = []
    let released = 0
    await this.#changing(releases, async ({ name: { fence, error, retryAfterMs }, cell, hinted, ts }) => {
      const { key, claim } = cell
      if (claim === undefined || claim.fence !== fence) return true
      this.#seen(claim.worker)
      if (error !== undefined) {
        const isParked = await this.#fail(hinted, cell, { error, retryAfterMs }, ts)
        if (isParked === undefined) return false
        if (isParked) parked.push(key)
      } else {
        const until = physicalMs(ts) + (retryAfterMs ?? 0)
        const left = retryAfterMs ? { fence: 0, untilMs: until, worker: '', leaseMs: 0 } : undefined
        if ((await this.#sources.cells.claim(this.id, cell, left)) === undefined) return false
        this.#resting.delete(keyText(key))
      }
      released++
      return true
    })
    if (released > 0) this.wake()
    return { released, parked }
  }

  /**
   * Looks at the cells of claims, and again at those that another server has changed meanwhile.
   * @param change returns false in that case.
   */
  async #changing<C extends ClaimName>(
    claims: readonly C[],
    change: (one: {
      readonly name: C
      readonly hinted: FoundCell
      readonly cell: HintedCell
      readonly ts: Timestamp
    }) => Promise<boolean>,
  ): Promise<void> {
    const { cells, store } = this.#sources
    for (let from = 0; from < claims.length; from += CELLS_AT_A_TIME) {
      let left: readonly C[] = claims.slice(from, from + CELLS_AT_A_TIME)
      for (let tries = 0; left.length > 0; tries++) {
        if (tries === TRIES_MAX) throw new KvError('overloaded', 'too many others change the same cells', {})
        const keys = left.map(({ key }) => key)
        const ts = await store.tso(1)
        const hinted = await cells.look(this.id, keys, ts)
        const looks = await cells.look(this.id, keys, ts)
        const done = await Promise.all(
          left.map((name, i) => change({ name, hinted: hinted[i] as HintedCell, cell: looks[i] as HintedCell, ts })),
        )
        left = left.filter((_, i) => !done[i])
      }
    }
  }

  // ---- State

  #seen(worker: string): void {
    const { store } = this.#sources
    this.#workers.seen(worker, store.time.elapsedMs(), physicalMs(store.now()))
  }

  get workers(): ObserverState['workers'] {
    return this.#workers.list(this.#claimedBy, this.#sources.store.time.elapsedMs())
  }

  get counts(): ObserverCounts {
    const { acks, conflicts } = this
    return { ...this.#counts, pendingIsExact: this.#counts.pending === 0, acks, conflicts }
  }

  count(): Promise<void> {
    this.#counting ??= this.#count().finally(() => {
      this.#counting = undefined
    })
    return this.#counting
  }

  async recount(): Promise<void> {
    if (this.#sources.store.time.elapsedMs() - this.#countedMs > FRESH_MS) await this.count().catch(() => {})
  }

  async #count(): Promise<void> {
    const { cells, store } = this.#sources
    const counts = { ...NOTHING }
    const claimedBy = new Map<string, number>()
    this.#countedMs = store.time.elapsedMs()
    const nowMs = physicalMs(store.time.clock())
    for await (const page of pagesOf((next) => cells.hinted(this.id, next), PAGE)) {
      counts.pending += page.length
      for (const { hint, claim } of page) {
        if (hint !== undefined && (counts.oldest === 0 || hint.commitTs < counts.oldest)) counts.oldest = hint.commitTs
        if (claim === undefined || claim.untilMs <= nowMs) continue
        if (claim.fence === 0) counts.delayed++
        else {
          counts.claimed++
          claimedBy.set(claim.worker, (claimedBy.get(claim.worker) ?? 0) + 1)
        }
      }
      if (counts.pending >= COUNTED_MAX) break
    }
    for await (const page of pagesOf((next) => cells.failures(this.id, next), PAGE)) {
      for (const { failure } of page) if (failure.parkedTs > 0) counts.parked++
      if (counts.parked >= COUNTED_MAX) break
    }
    this.#counts = counts
    this.#claimedBy = claimedBy
  }

  // ---- Cells

  async notify(keys: readonly Uint8Array[]): Promise<Timestamp> {
    await this.#sources.inForce(this.#observer)
    return this.#notify(keys, 'notified')
  }

  /** One transaction per key, so that each row can be removed once it is covered. */
  async #notify(keys: readonly Uint8Array[], kind: MarkKind): Promise<Timestamp> {
    const { id } = this
    let ts = 0
    for (const some of inParts(keys, COMMITS_AT_ONCE)) {
      const all = some.map((key) => this.#sources.commit((startTs) => notification({ id, key }, startTs, kind)))
      ts = Math.max(ts, ...(await Promise.all(all)))
    }
    return ts
  }

  async #advance({ keys, ts, record, before, after }: BackfillStep): Promise<boolean> {
    const { store, cells } = this.#sources
    const looks = await cells.look(this.id, keys, ts)
    const clean = looks.filter((cell) => uncovered(cell, this.#observer, TIMESTAMP_MAX, ts) === undefined)
    await this.#notify(
      clean.map(({ key }) => key),
      'backfill',
    )
    return store.system.replace(record, before, after)
  }

  async parked(keys: readonly Uint8Array[]): Promise<{ key: Uint8Array; failure: Failure }[]> {
    return (await this.#parkedOf(keys)).flatMap(({ key, failure }) => (failure === undefined ? [] : [{ key, failure }]))
  }

  retry(keys: readonly Uint8Array[]): Promise<number> {
    const change = (cell: HintedCell): Promise<void> =>
      unpark(this.#sources.cells, this.id, cell, { commitTs: cell.failure?.changeTs ?? 0, depth: 0 })
    return this.#eachParked(keys, change, true)
  }

  unparked(): void {}

  skip(keys: readonly Uint8Array[]): Promise<number> {
    const { cells, commit } = this.#sources
    return this.#eachParked(keys, async (cell) => {
      await commit((startTs) => ({ op: 'put', key: cell.ackKey, value: encodeAckTs(startTs) }))
      await cells.replaceFailure(this.id, cell, undefined)
    })
  }

  async #eachParked(
    keys: readonly Uint8Array[],
    change: (cell: HintedCell) => Promise<void>,
    orCovered = false,
  ): Promise<number> {
    let count = 0
    for (const some of inParts(keys, CELLS_AT_A_TIME)) {
      const parked = await this.#parkedOf(some, orCovered)
      await Promise.all(parked.map(change))
      count += parked.length
    }
    if (count > 0) this.wake()
    return count
  }

  /**
   * @returns the parked ones among the keys. @param orCovered includes cells whose failure was written after a run had covered
   *   them.
   */
  async #parkedOf(keys: readonly Uint8Array[], orCovered = false): Promise<HintedCell[]> {
    const { cells, store } = this.#sources
    const now = store.time.clock()
    const isMeant = (cell: HintedCell): boolean =>
      isParkedCell(cell, this.#observer, now) ||
      (orCovered && cell.failure !== undefined && uncovered(cell, this.#observer, TIMESTAMP_MAX, now) === undefined)
    return (await cells.look(this.id, keys, now)).filter(isMeant)
  }
}

function isAborted(signal: LazySignal | undefined): boolean {
  return typeof signal === 'object' && signal.aborted
}

function shuffled<T>(items: readonly T[], random: () => number): T[] {
  const out = [...items]
  for (let i = out.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1))
    const held = out[i] as T
    out[i] = out[j] as T
    out[j] = held
  }
  return out
}
