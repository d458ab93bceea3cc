import { OwnedNames } from '../access/shares.js'
import { MinHeap } from '../bytes/min-heap.js'
import type { Page, PageRequest } from '../bytes/sorted-map.js'
import { Backoff } from '../coordinator/backoff.js'
import { isKvError, KvError } from '../errors/kv-error.js'
import type { Awaitable } from '../event-loop/after.js'
import { requireWanted } from '../event-loop/lazy-signal.js'
import type { Limits } from '../limits.js'
import type { LeaseGuard } from '../percolator/commit-effects.js'
import type { Store } from '../store/store.js'
import { physicalMs, type Timestamp } from '../timestamp.js'
import type { AttachedKeys } from './attached-keys.js'
import { decidePut } from './decide-put.js'
import type { LeaseTerms, SeenLease } from './lease-terms.js'
import { closing, heldByAnother, isFree, keysAreLocked, otherFence, requireTimes, tooManyWait } from './refusals.js'
import { requireHolder, requireLeaseName } from './rules/lease.js'
import { freeSince, grant, hasKeysToEnd, type LeaseRecord, renewal } from './rules/lease-record.js'
import type { LeaseRequest, LeaseState, LeasesApi } from './rules/leases-api.js'
import { TermsInMemory } from './terms-in-memory.js'
import { TermsInRecords } from './terms-in-records.js'
import { WaitedLease } from './waited-lease.js'
import { type Asking, type WaitingHolder, WaitingHolders } from './waiting-holders.js'

/** Requests that wait for leases in one process. As many more may wait for the disk only. */
const WAITING_MAX = 10_000
/** How long a release waits for locks on the attached keys before it answers `deleting`. */
const KEYS_LOCKED_MS = 3000
/**
 * Requests answered in one turn of the event loop, because a lease has changed or their waits are over: some 10 ms of answers.
 */
const ANSWERED_TOGETHER_MAX = 100
/** The first pause between two looks at a lease that requests wait for. Each pause doubles the last. */
const LOOK_AGAIN_MS_FIRST = 50
const LOOK_AGAIN_MS_MAX = 1000
/** Longest delay with which the end of a wait is noticed, where waits are not timed by the clock of timers. */
const LOOK_MS_MAX = 1000
/** Delay before the first walk over all leases, and after a failed one. */
const WALK_MS = 1000
/** Leases that a walk ends at the same time. */
const ENDED_TOGETHER = 32
/** Grants of which this process remembers that they may have attached keys. */
const ATTACHING_MAX = 10_000

export interface LeasesOptions {
  /** Deletes the keys attached to a grant that is over. */
  readonly keys: Pick<AttachedKeys, 'fences' | 'end' | 'finish'>
  readonly limits: Pick<Limits, 'leasesMax'>
  /** Whether to look for leases that are over and that no request asks for. Default true. */
  readonly walks?: boolean | undefined
  /** Called with failures of background work. */
  readonly onError: (error: unknown) => void
}

export interface LeasesSummary {
  /** With several servers: as of the last look of this one. */
  readonly held: number
  /** Requests that wait for a lease. */
  readonly waiting: number
  /** Leases that are over and whose keys are still to be deleted. */
  readonly ending: number
  // Counted in this process since its start:
  readonly grants: number
  readonly renewals: number
  readonly ends: { readonly released: number; readonly ranOut: number }
}

type End = 'released' | 'ranOut'

/**
 * Leases: at most one holder per name, for a term that the holder renews, under a fence. Every change of a lease is one swap of
 * the state that was seen, wherever its term lives (`LeaseTerms`).
 * Why every commit under a fence is below every later fence: see the README of this folder.
 */
export class Leases implements LeasesApi {
  readonly #store: Store
  readonly #terms: LeaseTerms
  readonly #options: LeasesOptions
  readonly #owned: OwnedNames
  /** Leases that requests wait for. */
  readonly #waited = new Map<string, WaitedLease>()
  readonly #byLook = new MinHeap<WaitedLease>()
  readonly #waiting = new WaitingHolders()
  readonly #counts = { grants: 0, renewals: 0, released: 0, ranOut: 0 }
  /** Fences of grants that may have attached keys. */
  readonly #attaching = new Set<Timestamp>()
  /** Attempts to delete the keys of a grant, by its fence. */
  readonly #ending = new Map<Timestamp, Promise<boolean>>()
  readonly #stop = new AbortController()
  #timer: NodeJS.Timeout | undefined
  #timerAtMs = 0
  /** The next turn ends more pauses and waits. */
  #goesOn = false
  #walkTimer: NodeJS.Timeout | undefined
  /** Never reject. */
  #walking: Promise<void> | undefined
  #walksAgain = false
  #orphans: Promise<unknown> | undefined
  #isClosed = false

  private constructor(store: Store, terms: LeaseTerms, options: LeasesOptions) {
    this.#store = store
    this.#terms = terms
    this.#options = options
    this.#owned = new OwnedNames(options.limits.leasesMax, 'leases', (name) => terms.has(name))
    store.leases.listen({
      fencesAt: (names, ts) => terms.fencesAt(names, ts),
      attaches: (guard) => this.#attaches(guard),
    })
    this.#walkIn(WALK_MS)
  }

  /** Call this before anything is committed: until then every lease counts as free. */
  static async open(store: Store, options: LeasesOptions): Promise<Leases> {
    const { keys, limits } = options
    if (store.cells.isShared) return new Leases(store, new TermsInRecords(store, limits), options)
    const attached = store.upkeep.restoring === undefined ? await keys.fences() : new Set<Timestamp>()
    const { terms, orphans } = await TermsInMemory.open(store, limits, attached)
    const leases = new Leases(store, terms, options)
    const finish = (fence: Timestamp) => keys.finish(fence, Number.POSITIVE_INFINITY, leases.#stop.signal)
    leases.#orphans = Promise.all([...orphans].map((fence) => finish(fence).catch((error) => leases.#failed(error))))
    return leases
  }

  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    clearTimeout(this.#walkTimer)
    this.#stop.abort(closing())
    const waited = [...this.#waited.values()]
    for (const lease of waited) {
      for (const waiting of [...lease.queue])
        if (!waiting.isOver) {
          this.#waiting.remove(waiting)
          waiting.reject(closing())
        }
      lease.ask()
    }
    for (const { attended } of waited) await attended
    await Promise.allSettled(this.#ending.values())
    await this.#walking
    await this.#orphans
  }

  summary(): LeasesSummary {
    const { grants, renewals, released, ranOut } = this.#counts
    return { ...this.#terms.counts(), waiting: this.#waiting.size, grants, renewals, ends: { released, ranOut } }
  }

  // ---- Calls

  async put(name: string, request: LeaseRequest, caller?: string): Promise<LeaseState> {
    return this.acquire(name, request, caller)
  }

  /**
   * `put`. A renewal that writes nothing is answered in this turn of the event loop.
   * @param caller identity of the client, where a server distinguishes its clients; none gets more than half of all leases.
   */
  acquire(name: string, request: LeaseRequest, caller?: string): Awaitable<LeaseState> {
    requireTimes(request)
    const renewed = this.#terms.renew(name, request)
    if (renewed === undefined) return this.#ask(name, request, caller)
    this.#counts.renewals++
    return renewed
  }

  async #ask(name: string, request: LeaseRequest, caller: string | undefined): Promise<LeaseState> {
    // Names are checked here and not at a renewal, whose names a grant has already.
    requireLeaseName(name)
    requireHolder(request.holder)
    requireWanted(request.signal)
    const asked = (): Promise<LeaseState> =>
      new Promise((resolve, reject) => this.#asked({ name, request, resolve, reject }))
    return this.#owned.making(name, caller, asked)
  }

  async get(name: string): Promise<LeaseState> {
    requireLeaseName(name)
    const held = await this.#terms.held(name)
    if (held === undefined) throw isFree(name)
    return held
  }

  async list(prefix?: string): Promise<readonly LeaseState[]> {
    return (await this.page({ prefix, limit: Number.POSITIVE_INFINITY })).items
  }

  /** Leases that are held. Runs in slices. @param mayAccess whether the caller may see the name. Default: all. */
  page(request: PageRequest, mayAccess?: (name: string) => boolean): Promise<Page<LeaseState>> {
    return this.#terms.page(request, mayAccess)
  }

  async remove(name: string, holder: string, fence?: Timestamp): Promise<{ readonly deleting: boolean }> {
    requireLeaseName(name)
    requireHolder(holder)
    const backoff = new Backoff()
    let untilMs: number | undefined
    let tried: Timestamp | undefined
    for (;;) {
      const looked = this.#terms.look(name)
      const seen = looked instanceof Promise ? await looked : looked
      const { record, held } = seen
      if (record === undefined || record.state === 'free') return { deleting: false }
      // The lease was given up, by a write whose answer was lost or by another server, and has a new holder since.
      if (tried !== undefined && record.fence !== tried) return { deleting: false }
      if (held !== undefined && (held.holder !== holder || (fence ?? held.fence) !== held.fence))
        throw otherFence(name, held)
      tried = record.fence
      if (await this.#ended(name, seen, 'released')) return { deleting: false }
      if (!hasKeysToEnd(record)) {
        await backoff.wait()
        continue
      }
      untilMs ??= performance.now() + KEYS_LOCKED_MS
      const leftMs = this.#isClosed ? 0 : untilMs - performance.now()
      if (leftMs <= 0 && (await this.#terms.look(name)).record?.state === 'ending') return { deleting: true }
      await backoff.wait(Math.max(0, leftMs), this.#stop.signal).catch(() => {})
    }
  }

  // ---- Transactions

  async #attaches({ lease: name, fence }: LeaseGuard): Promise<void> {
    if (this.#attaching.has(fence)) return
    const backoff = new Backoff()
    for (;;) {
      const seen = await this.#terms.look(name)
      const { record } = seen
      if (record?.state !== 'held' || record.fence !== fence) return
      if (record.hasKeys || (await this.#terms.swap(name, seen, { ...record, hasKeys: true }))) break
      await backoff.wait()
    }
    if (this.#attaching.size >= ATTACHING_MAX) this.#attaching.clear()
    this.#attaching.add(fence)
  }

  // ---- Requests

  /** @throws KvError `overloaded` */
  #asked(asking: Asking): void {
    const { name, request } = asking
    const { waitMs = 0 } = request
    if (waitMs > 0 && this.#isClosed) throw closing()
    if (this.#waiting.size >= (waitMs > 0 ? WAITING_MAX : 2 * WAITING_MAX)) throw tooManyWait(WAITING_MAX)
    const lease = this.#waited.get(name) ?? new WaitedLease(name)
    this.#waited.set(name, lease)
    lease.news.add(this.#waiting.add(lease.queue, asking, this.#store.time.elapsedMs() + waitMs))
    lease.ask()
    lease.attended ??= this.#attend(lease)
    this.#schedule()
  }

  /** Answers the queue until it is empty. Runs once per lease at a time, so that requests of this process do not race. */
  async #attend(lease: WaitedLease): Promise<void> {
    let pauseMs = LOOK_AGAIN_MS_FIRST
    let backoff = new Backoff()
    while (lease.queue.size > 0) {
      lease.isAsked = false
      const endsInMs = await this.#answerSome(lease).catch((error) => this.#rejectAll(lease, error))
      if (endsInMs !== undefined) backoff = new Backoff()
      else if (lease.queue.size > 0) await backoff.wait()
      if (endsInMs === undefined || lease.queue.size === 0 || lease.isAsked) continue
      const paused = lease.pause()
      const nowMs = this.#store.time.elapsedMs()
      this.#byLook.set(lease, nowMs + Math.min(endsInMs, pauseMs * (0.5 + Math.random() / 2)))
      this.#schedule()
      await paused
      this.#byLook.delete(lease)
      pauseMs = Math.min(LOOK_AGAIN_MS_MAX, 2 * pauseMs)
    }
    this.#waited.delete(lease.name)
  }

  async #rejectAll({ queue }: WaitedLease, error: unknown): Promise<undefined> {
    let answered = 0
    for (const waiting of queue) {
      this.#waiting.remove(waiting)
      waiting.reject(error)
      if (++answered % ANSWERED_TOGETHER_MAX === 0) await nextTurn()
    }
    return undefined
  }

  /**
   * Looks at the lease once, and answers the requests that get it or whose waits are over, in order of arrival.
   * @returns milliseconds until the term ends; undefined: another server has changed the lease meanwhile.
   */
  async #answerSome(lease: WaitedLease): Promise<number | undefined> {
    const { name, queue, news } = lease
    const [first = queue.values().next().value] = news
    lease.news = new Set()
    const looked = this.#terms.look(name, first?.request)
    const seen = looked instanceof Promise ? await looked : looked
    // Another waiting request changes nothing for the others.
    const isSame = seen.held !== undefined && seen.held.fence === lease.waitsFor
    // Requests that came after the look are left out: it was too early to decide them or to count their term from.
    const all = isSame ? news : [...queue].filter((waiting) => !lease.news.has(waiting))
    lease.waitsFor = 0
    const round: Round = { name, seen, areKeysLocked: false }
    let answered = 0
    for (const waiting of all) {
      if (!queue.has(waiting)) continue
      if (answered === ANSWERED_TOGETHER_MAX) {
        await nextTurn()
        answered = 0
      }
      try {
        const decided = this.#decide(round, waiting)
        if (!(decided instanceof Promise ? await decided : decided)) return undefined
      } catch (error) {
        if (round.seen.held === undefined && isKvError(error, 'storage_unavailable')) throw error // The other requests would fail too.
        this.#waiting.remove(waiting)
        waiting.reject(error)
        return undefined
      }
      if (!queue.has(waiting)) answered++
    }
    const { held, nowTs } = round.seen
    lease.waitsFor = held?.fence ?? 0
    return held === undefined ? Number.POSITIVE_INFINITY : held.expiresAtMs - physicalMs(nowTs) + 1
  }

  /** Answers a request, unless it has to wait. @returns false when the lease must be looked at again. */
  #decide(round: Round, waiting: WaitingHolder): Awaitable<boolean> {
    const { name, seen } = round
    const { record, held } = seen
    const { request, isOver } = waiting
    const verdict = decidePut(request, held)
    if (held !== undefined && verdict === 'held') {
      if (isOver || request.fence !== undefined) this.#answer(waiting, heldByAnother(held))
      else this.#waiting.stay(waiting)
    } else if (verdict === 'other_fence') this.#answer(waiting, otherFence(name, held))
    else if (held === undefined && record !== undefined && hasKeysToEnd(record))
      return this.#decideAfterKeys(round, waiting, record)
    else return this.#give(round, waiting)
    return true
  }

  /** Answers the request after the keys of the last holder are deleted: no grant comes before that. */
  async #decideAfterKeys(round: Round, waiting: WaitingHolder, { holder }: LeaseRecord): Promise<boolean> {
    const { name, seen } = round
    round.areKeysLocked ||= !(await this.#ended(name, seen, 'ranOut'))
    if (!round.areKeysLocked) {
      round.seen = await this.#terms.look(name)
      return this.#decide(round, waiting)
    }
    if (waiting.isOver) this.#answer(waiting, keysAreLocked(name, holder, physicalMs(seen.nowTs)))
    else this.#waiting.stay(waiting)
    return true
  }

  /** Renews the lease, or grants it. */
  async #give(round: Round, waiting: WaitingHolder): Promise<boolean> {
    const { name, seen } = round
    const isGrant = seen.held === undefined
    const given = await this.#given(name, seen, waiting.request)
    if (given?.held === undefined) return false
    round.seen = given
    if (!isGrant) this.#counts.renewals++
    else {
      this.#counts.grants++
      if (seen.record?.state === 'held') this.#counts.ranOut++
      this.#walkIn(WALK_MS)
    }
    if (waiting.queue.has(waiting)) this.#answer(waiting, given.held)
    else if (isGrant) {
      await this.#ended(name, given, 'released') // The client has hung up meanwhile.
      return false
    }
    return true
  }

  async #given(name: string, seen: SeenLease, request: LeaseRequest): Promise<SeenLease | undefined> {
    const { holder, ttlMs } = request
    const { record, held, nowTs } = seen
    if (record === undefined) {
      // The lease has no record: a free one is made first, see `LeaseRecord`.
      await this.#terms.requireRoom()
      const free = await this.#terms.swap(name, seen, freeSince(nowTs))
      return free && this.#given(name, free, request)
    }
    const next = held === undefined ? grant(holder, ttlMs, await this.#store.tso(1)) : renewal(record, ttlMs, nowTs)
    return this.#terms.swap(name, seen, next)
  }

  #answer(waiting: WaitingHolder, answer: LeaseState | KvError): void {
    this.#waiting.remove(waiting)
    if (answer instanceof KvError) waiting.reject(answer)
    else waiting.resolve(answer)
  }

  // ---- Ends

  /**
   * Ends a grant that is over or was given up: first its keys, then its record.
   * @returns false when another server was faster, or other transactions have locked some of the keys. The record then says
   *   `ending`, or has changed.
   */
  #ended(name: string, seen: SeenLease, end: End): Promise<boolean> {
    const { record } = seen
    if (record === undefined || !hasKeysToEnd(record)) return this.#removed(name, seen, end)
    const known = this.#ending.get(record.fence)
    if (known !== undefined) return known // All waiting requests share one attempt.
    const ending = this.#endKeys(name, seen, record, end).finally(() => this.#ending.delete(record.fence))
    this.#ending.set(record.fence, ending)
    return ending
  }

  async #endKeys(name: string, seen: SeenLease, record: LeaseRecord, end: End): Promise<boolean> {
    let ending: SeenLease | undefined = seen
    if (record.state === 'held') {
      ending = await this.#terms.swap(name, seen, { ...record, state: 'ending' }) // From here on no transaction commits under it.
      if (ending === undefined) return false
      this.#counts[end]++
    }
    if (!(await this.#options.keys.end(record.fence))) return false
    this.#attaching.delete(record.fence)
    await this.#terms.swap(name, ending, undefined) // Otherwise another server has removed it.
    this.#waited.get(name)?.ask()
    return true
  }

  /** Removes the record of a grant without attached keys. */
  async #removed(name: string, seen: SeenLease, end: End): Promise<boolean> {
    if ((await this.#terms.swap(name, seen, undefined)) === undefined) return false
    if (seen.record?.state === 'held') this.#counts[end]++
    this.#waited.get(name)?.ask()
    return true
  }

  #walkIn(ms: number): void {
    if (this.#isClosed || this.#walkTimer !== undefined || ms === Number.POSITIVE_INFINITY) return
    if (this.#options.walks === false) return
    this.#walkTimer = setTimeout(() => this.#walk(), ms * (0.75 + Math.random() / 2))
    this.#walkTimer.unref()
  }

  /** Looks for leases that are over. The server that granted them may have died. */
  #walk(): void {
    this.#walksAgain = this.#walking !== undefined
    this.#walking ??= this.#endAll()
      .catch((error: unknown) => {
        this.#failed(error)
        return WALK_MS
      })
      .then((nextMs) => {
        this.#walking = undefined
        clearTimeout(this.#walkTimer)
        this.#walkTimer = undefined
        this.#walkIn(this.#walksAgain ? 0 : nextMs)
      })
  }

  /** @returns when to look again. */
  async #endAll(): Promise<number> {
    const { over, nextMs } = await this.#terms.over()
    const left = [...over]
    const endSome = async (): Promise<void> => {
      for (let one = left.pop(); one !== undefined && !this.#isClosed; one = left.pop()) {
        const [name, seen] = one
        const waited = this.#waited.get(name)
        if (waited !== undefined) waited.ask()
        else await this.#ended(name, seen, 'ranOut').catch((error) => this.#failed(error))
      }
    }
    await Promise.all(Array.from({ length: ENDED_TOGETHER }, endSome))
    return nextMs
  }

  #failed(error: unknown): void {
    if (!(error instanceof KvError)) this.#options.onError(error)
  }

  // ---- Time

  /** Ends terms and waits that are over now. Timers do the same by themselves. */
  look(): void {
    this.#endPauses()
    for (const lease of this.#waited.values()) lease.ask()
    this.#walk()
  }

  #endPauses(): void {
    const nowMs = this.#store.time.elapsedMs()
    const over = this.#waiting.endedBy(nowMs, ANSWERED_TOGETHER_MAX)
    for (const waiting of over) {
      const lease = this.#waited.get(waiting.name)
      lease?.news.add(waiting)
      lease?.ask()
    }
    let woken = 0
    for (; woken < ANSWERED_TOGETHER_MAX; woken++) {
      const { first } = this.#byLook
      if (first === undefined || first.rank > nowMs) break
      this.#byLook.delete(first)
      first.ask()
    }
    if (over.length < ANSWERED_TOGETHER_MAX && woken < ANSWERED_TOGETHER_MAX) this.#schedule()
    else if (!this.#goesOn) {
      this.#goesOn = true
      setImmediate(() => {
        this.#goesOn = false
        if (!this.#isClosed) this.#endPauses()
      })
    }
  }

  #schedule(): void {
    if (this.#isClosed || this.#goesOn) return
    const none = Number.POSITIVE_INFINITY
    const nextMs = Math.min(this.#waiting.nextMs ?? none, this.#byLook.first?.rank ?? none)
    if (nextMs === none) return
    const nowMs = this.#store.time.elapsedMs()
    const atMs = Math.min(Math.max(nextMs, nowMs), nowMs + LOOK_MS_MAX)
    if (this.#timer !== undefined && this.#timerAtMs <= atMs) return
    clearTimeout(this.#timer)
    this.#timerAtMs = atMs
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined
        this.#endPauses()
      },
      Math.max(1, Math.ceil(atMs - nowMs)),
    )
    this.#timer.unref()
  }
}

/** One pass over the requests that wait for a lease. */
interface Round {
  readonly name: string
  /** The lease as it is now. */
  seen: SeenLease
  /** Whether keys of its last holder are locked. */
  areKeysLocked: boolean
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve)
  })
}
