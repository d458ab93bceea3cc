import { OwnedNames } from '../access/shares.js'
import { MinHeap } from '../bytes/min-heap.js'
import { type Page, type PageRequest, SortedMap } from '../bytes/sorted-map.js'
import { Backoff } from '../coordinator/backoff.js'
import { KvError } from '../errors/kv-error.js'
import { requireWanted } from '../event-loop/late-signal.js'
import type { Store } from '../store/store.js'
import type { SystemName } from '../store/system-records.js'
import { physicalMs, type Timestamp } from '../timestamp.js'
import { judgePut } from './judge-put.js'
import {
  closing,
  heldByAnother,
  isFree,
  keysAreLocked,
  otherFence,
  requireSound,
  tooManyLeases,
  tooManyWait,
} from './refusals.js'
import { fenceInForce } from './rules/check-lease.js'
import { decodeLease, encodeLease } from './rules/codec/lease.js'
import { requireHolder, requireLeaseName, type StoredLease } from './rules/lease.js'
import type { LeaseRequest, LeaseState } from './rules/leases-api.js'
import {
  ANSWERED_TOGETHER_MAX,
  KEYS_LOCKED_MS,
  type LeasesOptions,
  type LeasesSummary,
  type ServerLeases,
  WAITING_MAX,
} from './server-leases.js'
import { Slot, type SlotCounts, type Try } from './slot.js'
import { type Asking, type WaitingHolder, WaitingHolders } from './waiting-holders.js'

const LEASES = 'lease/' satisfies SystemName
/**
 * A restart adds this to the terms, for clients that find the server again with a back-off. A lease then ends no later than a TTL and
 * this after the server is back.
 */
const RESTART_MS = 2000
/** Leases whose records are removed in one write. */
const REMOVED_TOGETHER_MAX = 1000
/** From a removal that has failed to the next one. */
const REMOVE_AGAIN_MS = 1000
/** Terms whose ends are noticed in one turn. */
const ENDED_TOGETHER_MAX = 1000
/** From one try to delete the keys of a lease to the next one: doubled each time up to the second. */
const END_AGAIN_MS_FIRST = 10
const END_AGAIN_MS_MAX = 1000
/** Leases whose keys are being deleted in the background. */
const ENDING_MAX = 64
/** The end of a lease is noticed so soon, where the clock of leases is not that of timers. */
const LOOK_MS_MAX = 1000

/**
 * Leases: at most one holder per name, for a time that it renews, under a fence. Grants, releases and other TTLs are on disk before they are
 * answered. Renewals are in memory, and a restart counts as a renewal of every lease, so that no holder loses one by a crash.
 *
 * Time is that of a clock that nobody can set. The disk has no part in it: a lease neither ends nor stays because a write is slow.
 */
export class Leases implements ServerLeases {
  readonly #store: Store
  readonly #options: LeasesOptions
  readonly #slots = new SortedMap<Slot>()
  readonly #owned: OwnedNames
  /** Those whose terms run. */
  readonly #byEnd = new MinHeap<Slot>()
  readonly #waiting = new WaitingHolders()
  /** Free ones whose records have to be removed, and no keys. */
  readonly #over = new Set<Slot>()
  readonly #counts = { grants: 0, renewals: 0, released: 0, ranOut: 0 }
  readonly #slotCounts: SlotCounts = { ending: 0 }
  /** Free ones whose keys have to be deleted. */
  readonly #toEnd = new MinHeap<Try>()
  readonly #stop = new AbortController()
  /** Never reject. */
  readonly #ending = new Set<Promise<void>>()
  #removesAtMs = 0
  /** Never rejects. */
  #removing: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #timerAtMs = 0
  /** The next turn looks for more that is over. */
  #looksOn = false
  #isClosed = false

  private constructor(store: Store, options: LeasesOptions) {
    this.#store = store
    this.#options = options
    this.#owned = new OwnedNames(options.limits.leasesMax, 'leases', (name) => this.#slots.has(name))
    store.leases.listen({
      fenceOf: (name) => this.#fenceOf(this.#slots.get(name)),
      attaches: ({ lease, fence }) => {
        const slot = this.#slots.get(lease)
        if (slot?.lease?.fence === fence) slot.hasKeys = true
      },
    })
  }

  /** Call this before anything is committed: until then every lease counts as free. */
  static async open(store: Store, options: LeasesOptions): Promise<Leases> {
    const leases = new Leases(store, options)
    const orphans = new Set(store.upkeep.restoring === undefined ? await options.keys.fences() : [])
    for (const [record, value] of await store.system.list(LEASES)) {
      const slot = leases.#open(record.slice(LEASES.length))
      const lease = decodeLease(value)
      slot.hasKeys = orphans.delete(lease.fence)
      if (lease.state === 'ending') leases.#wasReleased(slot, lease)
      else leases.#became(slot, lease, RESTART_MS)
    }
    // A repair may have lost the record of a lease.
    for (const fence of orphans) leases.#finish(fence)
    leases.#schedule()
    return leases
  }

  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    for (const { queue } of this.#slots.values())
      for (const waiting of [...queue]) {
        if (waiting.request.waitMs === undefined || waiting.request.waitMs === 0) continue
        this.#waiting.remove(waiting)
        waiting.reject(closing())
      }
    this.#stop.abort(closing())
    for (const { writing } of this.#slots.values()) await writing
    await Promise.all(this.#ending)
  }

  summary(): LeasesSummary {
    // Nobody may have noticed yet that some terms have ended.
    let held = this.#byEnd.size
    const nowMs = this.#store.time.elapsedMs()
    for (const { rank } of this.#byEnd.ascending()) {
      if (rank > nowMs) break
      held--
    }
    const { ending } = this.#slotCounts
    const { grants, renewals, released, ranOut } = this.#counts
    return {
      held,
      waiting: this.#waiting.size,
      ending,
      grants,
      renewals,
      ends: { released, ranOut },
    }
  }

  // ---- Calls

  async put(name: string, request: LeaseRequest): Promise<LeaseState> {
    return (
      this.renewNow(name, request) ?? this.#owned.making(name, request.caller, async () => this.#ask(name, request))
    )
  }

  renewNow(name: string, request: Omit<LeaseRequest, 'waitMs' | 'signal'>): LeaseState | undefined {
    const slot = this.#slots.get(name)
    if (slot === undefined || slot.writing !== undefined) return undefined
    const held = this.#heldOf(slot)
    if (judgePut(request, held, slot.storedTtlMs) !== 'renew') return undefined
    return this.#renewed(slot)
  }

  #ask(name: string, request: LeaseRequest): Promise<LeaseState> {
    requireSound(name, request)
    requireWanted(request.signal)
    const slot = this.#slots.get(name)
    if (slot === undefined && request.fence !== undefined) throw otherFence(name, undefined)
    return new Promise((resolve, reject) => {
      this.#asked(slot ?? this.#openNew(name), { name, request, resolve, reject })
    })
  }

  #open(name: string): Slot {
    const slot = new Slot(name, this.#slotCounts)
    this.#slots.set(name, slot)
    return slot
  }

  /** @throws KvError `overloaded` */
  #openNew(name: string): Slot {
    const { leasesMax } = this.#options.limits
    if (this.#slots.size >= leasesMax) throw tooManyLeases(leasesMax)
    return this.#open(name)
  }

  /** @throws KvError `lease_held`, `precondition_failed`, `overloaded` */
  #asked(slot: Slot, asking: Asking): void {
    const { holder, fence, waitMs = 0 } = asking.request
    const held = this.#heldOf(slot)
    // A renewal is one from the moment at which it comes, however long the disk takes.
    const isHolder = held?.holder === holder && (fence ?? held.fence) === held.fence
    if (isHolder) this.#extend(slot)
    const isFirst = slot.queue.size === 0 || held !== undefined // A free lease is about to be that of the first who waits.
    if (slot.writing === undefined && isFirst && this.#judged(slot, asking, waitMs === 0)) return
    if (waitMs > 0 && this.#isClosed) throw closing()
    if (this.#waiting.size >= WAITING_MAX) throw tooManyWait(WAITING_MAX)
    const nowMs = this.#store.time.elapsedMs()
    this.#waiting.add(slot.queue, asking, nowMs + waitMs)
    // One more who waits changes nothing for the others. But nobody may have noticed yet that the lease is free.
    if (this.#heldOf(slot) === undefined && nowMs >= slot.endsAgainAtMs) this.#advance(slot)
    this.#schedule()
  }

  /**
   * Answers a request, or begins to write for it. Nothing of the lease may be being written.
   * @param isOver it waits no longer.
   * @returns false: it has to wait.
   */
  #judged(slot: Slot, asking: Asking, isOver: boolean): boolean {
    const { request, resolve, reject } = asking
    const held = this.#heldOf(slot)
    switch (judgePut(request, held, slot.storedTtlMs)) {
      case 'renew':
        resolve(this.#renewed(slot))
        return true
      case 'other_fence':
        reject(this.#otherFence(slot))
        return true
      case 'held':
        if (!isOver && request.fence === undefined) return false
        reject(heldByAnother(this.#stateOf(slot)))
        return true
      case 'store':
        void this.#storeTtl(slot, held as StoredLease, asking)
        return true
      case 'grant':
        this.#free(slot)
        if (slot.ended !== undefined) return this.#isRefused(slot, slot.ended, asking, isOver)
        void this.#grant(slot, asking)
        return true
    }
  }

  /** The keys of the last grant come first. @returns false: the request has to wait for their end. */
  #isRefused(slot: Slot, ended: StoredLease, { reject }: Asking, isOver: boolean): boolean {
    if (this.#store.time.elapsedMs() >= slot.endsAgainAtMs) this.#inBackground(this.#tryToEnd(slot, ended))
    else if (isOver) {
      reject(keysAreLocked(slot.name, ended.holder, physicalMs(this.#store.now())))
      return true
    }
    return false
  }

  async get(name: string): Promise<LeaseState> {
    requireLeaseName(name)
    const slot = this.#slots.get(name)
    if (slot === undefined || this.#heldOf(slot) === undefined) throw isFree(name)
    return this.#stateOf(slot)
  }

  async list(prefix?: string): Promise<readonly LeaseState[]> {
    return (await this.page({ prefix, limit: Number.POSITIVE_INFINITY })).items
  }

  async page(request: PageRequest, reaches?: (name: string) => boolean): Promise<Page<LeaseState>> {
    const isHeld = (slot: Slot): boolean => this.#heldOf(slot) !== undefined
    const { items, next } = await this.#slots.page(request, (slot) => isHeld(slot) && reaches?.(slot.name) !== false)
    return { items: items.filter(isHeld).map((slot) => this.#stateOf(slot)), next }
  }

  async remove(name: string, holder: string, fence?: Timestamp): Promise<{ readonly deleting: boolean }> {
    requireLeaseName(name)
    requireHolder(holder)
    for (;;) {
      const slot = this.#slots.get(name)
      if (slot === undefined) return { deleting: false }
      if (slot.writing !== undefined) {
        await slot.writing
        continue
      }
      const held = this.#heldOf(slot)
      if (held !== undefined && (held.holder !== holder || (fence ?? held.fence) !== held.fence))
        throw this.#otherFence(slot)
      this.#free(slot, 'released') // From this turn on no transaction commits under its fence.
      if (slot.ended !== undefined) return { deleting: !(await this.#release(slot, slot.ended)) }
      if (slot.hasRecord) await this.#erase([slot])
      else this.#advance(slot)
      return { deleting: false }
    }
  }

  // ---- Terms

  #fenceOf(slot: Slot | undefined): Timestamp {
    const lease = slot?.lease
    return lease === undefined
      ? 0
      : fenceInForce({ fence: lease.fence, endsAtMs: slot?.rank ?? 0 }, this.#store.time.elapsedMs())
  }

  /** The grant in force. */
  #heldOf(slot: Slot): StoredLease | undefined {
    return this.#fenceOf(slot) === 0 ? undefined : slot.lease
  }

  /** The lease has a term from now on, and its record is on disk. */
  #became(slot: Slot, lease: StoredLease, graceMs = 0): void {
    slot.lease = lease
    slot.hasRecord = true
    slot.storedTtlMs = lease.ttlMs
    this.#extend(slot, graceMs)
  }

  #extend(slot: Slot, graceMs = 0): void {
    const endsAtMs = this.#store.time.elapsedMs() + (slot.lease?.ttlMs ?? 0) + graceMs
    this.#byEnd.set(slot, slot.place === -1 ? endsAtMs : Math.max(endsAtMs, slot.rank))
  }

  #renewed(slot: Slot): LeaseState {
    this.#counts.renewals++
    this.#extend(slot)
    return this.#stateOf(slot)
  }

  /** From this turn on its fence is not in force. */
  #free(slot: Slot, end: 'released' | 'ranOut' = 'ranOut'): void {
    if (slot.lease !== undefined) {
      this.#counts[end]++
      if (slot.hasKeys) slot.ended = slot.lease
    }
    slot.lease = undefined
    slot.hasKeys = false
    this.#byEnd.delete(slot)
  }

  // ---- The disk

  async #grant(slot: Slot, { request, resolve, reject }: Asking): Promise<void> {
    const { holder, ttlMs } = request
    this.#over.delete(slot)
    await this.#writing([slot], async () => {
      // Above the commit_ts of every transaction under an earlier fence: those are fixed already.
      const lease = { holder, ttlMs, fence: await this.#store.tso(1) }
      await this.#record(slot, lease)
      this.#became(slot, lease)
      this.#counts.grants++
      resolve(this.#stateOf(slot))
    }).catch(reject)
  }

  /** A renewal by another TTL, or of a lease whose record is not known. */
  async #storeTtl(slot: Slot, held: StoredLease, { request, resolve, reject }: Asking): Promise<void> {
    await this.#writing([slot], async () => {
      const lease = { ...held, ttlMs: request.ttlMs }
      await this.#record(slot, lease)
      // Even if its term has ended meanwhile: nobody else was granted the lease.
      this.#byEnd.delete(slot)
      this.#became(slot, lease)
      resolve(this.#renewed(slot))
    }).catch(reject)
  }

  async #record(slot: Slot, lease: StoredLease, state: 'held' | 'ending' = 'held'): Promise<void> {
    slot.hasRecord = true // Perhaps so if this fails.
    slot.isEnding = false
    slot.storedTtlMs = undefined
    const value = encodeLease({ ...lease, state, endsTs: 0, hasKeys: false })
    await this.#store.system.write([{ name: `${LEASES}${slot.name}`, value }])
    slot.isEnding = state === 'ending'
    slot.storedTtlMs = lease.ttlMs
  }

  /** Removes the records of free leases. Until it is done nobody is granted them. */
  #erase(slots: readonly Slot[]): Promise<void> {
    for (const slot of slots) this.#over.delete(slot)
    return this.#writing(slots, async () => {
      await this.#store.system.write(slots.map(({ name }) => ({ name: `${LEASES}${name}`, value: undefined })))
      for (const slot of slots) slot.hasRecord = false
    })
  }

  /**
   * Goes on until the keys of a released lease are deleted.
   * @returns false: for long they were locked, and others go on. That the lease was released is on disk then.
   */
  async #release(slot: Slot, ended: StoredLease): Promise<boolean> {
    const { fence } = ended
    const untilMs = performance.now() + KEYS_LOCKED_MS
    const backoff = new Backoff()
    for (;;) {
      await (slot.writing ?? this.#tryToEnd(slot, ended)) // One try is enough for all who wait for it.
      if (slot.ended?.fence !== fence) return true
      const leftMs = this.#isClosed ? 0 : untilMs - performance.now()
      if (leftMs > 0) await backoff.wait(leftMs, this.#stop.signal).catch(() => {})
      else if (slot.isEnding) return false
    }
  }

  /**
   * Deletes the keys that are attached to a grant which is over. Before that its record says so: after a restart nobody must hold a lease that has
   * lost its keys. Where other transactions have locked one, it changes nothing and waits for nobody: `Slot.ended` stays.
   */
  #tryToEnd(slot: Slot, ended: StoredLease): Promise<void> {
    this.#toEnd.delete(slot.nextTry)
    return this.#writing([slot], async () => {
      try {
        if (!slot.isEnding) await this.#record(slot, ended, 'ending')
        const tried = await this.#options.keys.end(ended.fence, slot.lockedKey)
        slot.lockedKey = tried.isDone ? undefined : tried.lockedKey
        if (tried.isDone) slot.hasEnded()
      } finally {
        if (slot.ended !== undefined) {
          slot.endsAgainMs = Math.min(END_AGAIN_MS_MAX, Math.max(END_AGAIN_MS_FIRST, 2 * slot.endsAgainMs))
          slot.endsAgainAtMs = this.#store.time.elapsedMs() + slot.endsAgainMs
        }
      }
    })
  }

  #finish(fence: Timestamp): void {
    this.#inBackground(this.#options.keys.finish(fence, Number.POSITIVE_INFINITY, this.#stop.signal))
  }

  #inBackground(work: Promise<unknown>): void {
    const ending = work
      .then(() => {})
      .catch((error: unknown) => {
        if (!(error instanceof KvError)) this.#options.onError(error)
      })
      .finally(() => {
        this.#ending.delete(ending)
        this.#endSome()
      })
    this.#ending.add(ending)
  }

  /** The server was stopped before the keys of the lease could be deleted. */
  #wasReleased(slot: Slot, lease: StoredLease): void {
    slot.hasRecord = true
    slot.isEnding = true
    if (slot.hasKeys) slot.ended = lease
    slot.hasKeys = false
    this.#advance(slot)
  }

  async #writing(slots: readonly Slot[], write: () => Promise<void>): Promise<void> {
    let done = (): void => {}
    const writing = new Promise<void>((resolve) => {
      done = resolve
    })
    for (const slot of slots) slot.writing = writing
    try {
      await write()
    } finally {
      for (const slot of slots) slot.writing = undefined
      done()
      for (const slot of slots) this.#advance(slot)
      this.#schedule()
    }
  }

  /** Goes through those that wait for the lease, after anything has changed about it. */
  #advance(slot: Slot): void {
    if (slot.writing !== undefined) return
    let answered = 0
    for (const waiting of slot.queue) {
      const isOver = waiting.isOver || (waiting.request.waitMs ?? 0) === 0
      if (this.#judged(slot, waiting, isOver)) {
        this.#waiting.remove(waiting)
        answered++
      }
      if (slot.writing !== undefined) return
      if (answered === ANSWERED_TOGETHER_MAX) return void setImmediate(() => this.#advanceAgain(slot))
    }
    if (this.#heldOf(slot) !== undefined) return
    this.#free(slot)
    if (slot.ended !== undefined) this.#toEnd.set(slot.nextTry, slot.endsAgainAtMs)
    else if (slot.hasRecord) this.#over.add(slot)
    else this.#slots.delete(slot.name)
  }

  #advanceAgain(slot: Slot): void {
    if (this.#slots.get(slot.name) === slot) this.#advance(slot)
  }

  // ---- Time

  look(): void {
    const nowMs = this.#store.time.elapsedMs()
    let ended = 0
    for (; ended < ENDED_TOGETHER_MAX; ended++) {
      const { first } = this.#byEnd
      if (first === undefined || first.rank > nowMs) break
      this.#byEnd.delete(first)
      this.#advance(first)
    }
    const over = this.#waiting.endedBy(nowMs, ANSWERED_TOGETHER_MAX)
    for (const waiting of over) this.#endWait(waiting)
    if (ended === ENDED_TOGETHER_MAX || over.length === ANSWERED_TOGETHER_MAX) this.#lookOn()
    this.#endSome()
    if (this.#over.size > 0 && nowMs >= this.#removesAtMs) this.#removeOver()
    this.#schedule()
  }

  /** In the next turn. Node runs timers that are due by then in the same one. */
  #lookOn(): void {
    if (this.#looksOn) return
    this.#looksOn = true
    setImmediate(() => {
      this.#looksOn = false
      if (!this.#isClosed) this.look()
    })
  }

  #endWait(waiting: WaitingHolder): void {
    const slot = this.#slots.get(waiting.name)
    if (slot === undefined || slot.writing !== undefined) return // It is judged after the write.
    if (this.#judged(slot, waiting, true)) this.#waiting.remove(waiting)
  }

  /** Each on its own, so that none waits for the locks of another. */
  #endSome(): void {
    if (this.#isClosed) return
    const nowMs = this.#store.time.elapsedMs()
    while (this.#ending.size < ENDING_MAX) {
      const { first } = this.#toEnd
      if (first === undefined || first.rank > nowMs) return
      const { slot } = first
      this.#toEnd.delete(first)
      if (slot.ended !== undefined) this.#inBackground(this.#tryToEnd(slot, slot.ended))
    }
  }

  #removeOver(): void {
    if (this.#removing !== undefined) return
    const slots: Slot[] = []
    for (const slot of this.#over) if (slots.push(slot) === REMOVED_TOGETHER_MAX) break
    this.#removing = this.#erase(slots)
      .catch((error: unknown) => {
        this.#removesAtMs = this.#store.time.elapsedMs() + REMOVE_AGAIN_MS
        if (!(error instanceof KvError)) this.#options.onError(error)
      })
      .finally(() => {
        this.#removing = undefined
        this.#schedule()
      })
  }

  #schedule(): void {
    if (this.#isClosed || this.#looksOn) return
    const removesAtMs = this.#over.size > 0 && this.#removing === undefined ? this.#removesAtMs : undefined
    const endsAtMs = this.#ending.size < ENDING_MAX ? this.#toEnd.first?.rank : undefined
    const times = [this.#byEnd.first?.rank, this.#waiting.nextMs, removesAtMs, endsAtMs].filter(
      (ms) => ms !== undefined,
    )
    if (times.length === 0) return
    const nowMs = this.#store.time.elapsedMs()
    const atMs = Math.min(Math.max(Math.min(...times), nowMs), nowMs + LOOK_MS_MAX)
    if (this.#timer !== undefined && this.#timerAtMs <= atMs) return
    clearTimeout(this.#timer)
    this.#timerAtMs = atMs
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined
        this.look()
      },
      Math.max(1, Math.ceil(atMs - nowMs)),
    )
    this.#timer.unref()
  }

  // ---- Answers

  #stateOf({ name, lease, rank }: Slot): LeaseState {
    const { holder, fence, ttlMs } = lease as StoredLease
    return { name, holder, fence, ttlMs, expiresAtMs: this.#expiresAtMs(rank) }
  }

  /** Unix milliseconds by the present clock. They change when that is set. */
  #expiresAtMs(rank: number): number {
    return Math.ceil(physicalMs(this.#store.now()) + rank - this.#store.time.elapsedMs())
  }

  #otherFence(slot: Slot): KvError<'precondition_failed'> {
    return otherFence(slot.name, this.#heldOf(slot) && this.#stateOf(slot))
  }
}
