import { OwnedNames } from '../access/shares.js'
import type { Page, PageRequest } from '../bytes/sorted-map.js'
import { Backoff } from '../coordinator/backoff.js'
import { KvError } from '../errors/kv-error.js'
import { requireWanted } from '../event-loop/late-signal.js'
import type { LeaseRider } from '../percolator/riders.js'
import type { Store } from '../store/store.js'
import { physicalMs, type Timestamp, timestampFromMs } from '../timestamp.js'
import { judgePut } from './judge-put.js'
import { LeaseRecords, type SeenLease } from './lease-records.js'
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
import { leaseLost, requireHolder, requireLeaseName } from './rules/lease.js'
import { freeSince, grant, hasKeysToEnd, heldAt, type LeaseRecord, renewal } from './rules/lease-record.js'
import type { LeaseRequest, LeaseState } from './rules/leases-api.js'
import {
  ANSWERED_TOGETHER_MAX,
  KEYS_LOCKED_MS,
  type LeasesOptions,
  type LeasesSummary,
  type ServerLeases,
  WAITING_MAX,
} from './server-leases.js'
import { WaitedLease } from './waited-lease.js'
import { type Asking, type WaitingHolder, WaitingHolders } from './waiting-holders.js'

/** Pauses between two looks at a lease that somebody waits for, doubled each time. */
const LOOK_AGAIN_MS_FIRST = 50
const LOOK_AGAIN_MS_MAX = 1000
/** The end of a wait is noticed so soon, where the clock of waits is not that of timers. */
const LOOK_MS_MAX = 1000
/** From one walk over all leases to the next one: where keys are attached to some of them, and where none are. */
const WALK_MS_WITH_KEYS = 1500
const WALK_MS = 10_000
/** Where there are more leases, walks are rarer in proportion. */
const WALK_LEASES = 1000
/** Leases that a walk ends at the same time. */
const ENDED_TOGETHER = 8
/** Whoever has made a free record grants the lease by it, or has died by then. */
const FREE_MS_MAX = 60_000
/** Grants that this process knows to look for keys at their end. */
const ATTACHING_MAX = 10_000
const COUNT_AGAIN_MS = 1000

const LEASE_NAMES = /^[A-Za-z0-9._/-]*$/

export interface SharedLeasesOptions extends LeasesOptions {
  /** Goes over all leases from time to time, and ends those that nobody asks for. */
  readonly walks: boolean
}

/** A record, and a timestamp of the oracle. */
interface Look extends SeenLease {
  readonly nowTs: Timestamp
}

/**
 * Leases that several servers grant, whose records stand in the table of all. Nothing rests on a clock, on the memory of a server, or on
 * messages between them: terms end by timestamps of the oracle, and every change is one conditional write on the record that was read.
 *
 * Why every commit under a fence is below every later fence: see `HeldLeases.lostAt`, `grant`, and the README of this folder.
 */
export class SharedLeases implements ServerLeases {
  readonly #store: Store
  readonly #options: SharedLeasesOptions
  readonly #records: LeaseRecords
  /** Those that requests wait for. */
  readonly #waited = new Map<string, WaitedLease>()
  readonly #waiting = new WaitingHolders()
  readonly #counts = { grants: 0, renewals: 0, released: 0, ranOut: 0 }
  /** As the last walk or count has found them, and what this process has done since then. */
  readonly #found = { held: 0, ending: 0, records: 0, atMs: Number.NEGATIVE_INFINITY }
  #names = new Set<string>()
  readonly #owned: OwnedNames
  /** Fences of grants that look for keys at their end. */
  readonly #attaching = new Set<Timestamp>()
  readonly #stop = new AbortController()
  #timer: NodeJS.Timeout | undefined
  #timerAtMs = 0
  #walkTimer: NodeJS.Timeout | undefined
  /** Never rejects. */
  #walking: Promise<void> | undefined
  #isClosed = false

  constructor(store: Store, options: SharedLeasesOptions) {
    this.#store = store
    this.#options = options
    this.#owned = new OwnedNames(options.limits.leasesMax, 'leases', (name) => this.#names.has(name))
    this.#records = new LeaseRecords(store.system)
    store.leases.listen({
      fenceOf: () => {
        throw new Error('leases of several servers have to be read')
      },
      attaches: (rider) => this.#attaches(rider),
      shared: { fencesAt: (names, ts) => this.#fencesAt(names, ts) },
    })
    if (options.walks) this.#walkIn(WALK_MS_WITH_KEYS)
  }

  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    clearTimeout(this.#walkTimer)
    this.#stop.abort(closing())
    for (const lease of this.#waited.values()) {
      for (const waiting of [...lease.queue])
        if (!isOver(waiting)) {
          this.#waiting.remove(waiting)
          waiting.reject(closing())
        }
      lease.ask()
    }
    await this.#walking
  }

  summary(): LeasesSummary {
    const { grants, renewals, released, ranOut } = this.#counts
    const { held, ending } = this.#found
    return {
      held: Math.max(0, held),
      waiting: this.#waiting.size,
      ending,
      grants,
      renewals,
      ends: { released, ranOut },
    }
  }

  // ---- Calls

  async put(name: string, request: LeaseRequest): Promise<LeaseState> {
    requireSound(name, request)
    requireWanted(request.signal)
    const asked = (): Promise<LeaseState> =>
      new Promise((resolve, reject) => this.#asked({ name, request, resolve, reject }))
    return this.#owned.making(name, request.caller, asked)
  }

  /** Every renewal is a write. */
  renewNow(): undefined {}

  async get(name: string): Promise<LeaseState> {
    requireLeaseName(name)
    const { lease, nowTs } = await this.#look(name)
    const held = heldAt(lease, nowTs)
    if (held === undefined) throw isFree(name)
    return stateOf(name, held)
  }

  async list(prefix?: string): Promise<readonly LeaseState[]> {
    return (await this.page({ prefix, limit: Number.POSITIVE_INFINITY })).items
  }

  async page(
    { prefix = '', after, limit }: PageRequest,
    reaches?: (name: string) => boolean,
  ): Promise<Page<LeaseState>> {
    const items: LeaseState[] = []
    if (!LEASE_NAMES.test(prefix)) return { items, next: undefined }
    const nowTs = await this.#now()
    for await (const records of this.#records.pages(prefix, after))
      for (const [name, { lease }] of records) {
        const held = heldAt(lease, nowTs)
        if (held === undefined || reaches?.(name) === false) continue
        if (items.length === limit) return { items, next: items.at(-1)?.name }
        items.push(stateOf(name, held))
      }
    return { items, next: undefined }
  }

  async remove(name: string, holder: string, fence?: Timestamp): Promise<{ readonly deleting: boolean }> {
    requireLeaseName(name)
    requireHolder(holder)
    const backoff = new Backoff()
    let untilMs: number | undefined
    let tried: Timestamp | undefined
    for (;;) {
      const look = await this.#look(name)
      const { lease, nowTs } = look
      if (lease === undefined || lease.state === 'free') return { deleting: false }
      // The lease was given up, by a write whose answer was lost or by another server, and somebody holds it since.
      if (tried !== undefined && lease.fence !== tried) return { deleting: false }
      const held = heldAt(lease, nowTs)
      if (held !== undefined && (held.holder !== holder || (fence ?? held.fence) !== held.fence))
        throw otherFence(name, stateOf(name, held))
      tried = lease.fence
      if (hasKeysToEnd(lease)) {
        untilMs ??= performance.now() + KEYS_LOCKED_MS
        if (await this.#endKeys(name, look, 'released')) return { deleting: false }
        const leftMs = this.#isClosed ? 0 : untilMs - performance.now()
        if (leftMs <= 0 && (await this.#records.read(name)).lease?.state === 'ending') return { deleting: true }
        await backoff.wait(Math.max(0, leftMs), this.#stop.signal).catch(() => {})
      } else if (await this.#removed(name, look, 'released')) return { deleting: false }
      else await backoff.wait()
    }
  }

  // ---- Transactions

  async #fencesAt(names: readonly string[], ts?: Timestamp): Promise<ReadonlyMap<string, Timestamp>> {
    const atTs = ts ?? (await this.#now())
    const leases = await this.#records.many(names) // Not before the timestamp is known.
    return new Map(names.map((name, i) => [name, heldAt(leases[i], atTs)?.fence ?? 0]))
  }

  async #attaches({ lease: name, fence, index = 0 }: LeaseRider): Promise<void> {
    if (this.#attaching.has(fence)) return
    const backoff = new Backoff()
    for (;;) {
      const seen = await this.#records.read(name)
      const { lease } = seen
      if (lease?.state !== 'held' || lease.fence !== fence)
        throw leaseLost([{ index, lease: name, fence: lease?.state === 'held' ? lease.fence : 0 }])
      if (lease.hasKeys || (await this.#records.swap(name, seen, { ...lease, hasKeys: true }))) break
      await backoff.wait()
    }
    if (this.#attaching.size >= ATTACHING_MAX) this.#attaching.clear()
    this.#attaching.add(fence)
  }

  // ---- Those that ask

  /** @throws KvError `overloaded`, the reason of the signal */
  #asked(asking: Asking): void {
    const { name, request } = asking
    const { waitMs = 0 } = request
    if (waitMs > 0 && this.#isClosed) throw closing()
    if (this.#waiting.size >= WAITING_MAX) throw tooManyWait(WAITING_MAX)
    const lease = this.#waited.get(name) ?? new WaitedLease(name)
    this.#waiting.add(lease.queue, asking, this.#store.time.elapsedMs() + waitMs)
    this.#waited.set(name, lease)
    lease.ask()
    if (!lease.isAttended) void this.#attend(lease)
    this.#schedule()
  }

  /** Goes through the queue until it is empty. One at a time does so for a lease, so that requests of this process do not race. */
  async #attend(lease: WaitedLease): Promise<void> {
    lease.isAttended = true
    let pauseMs = LOOK_AGAIN_MS_FIRST
    while (lease.queue.size > 0) {
      lease.isAsked = false
      let endsInMs = Number.POSITIVE_INFINITY
      try {
        endsInMs = await this.#answerSome(lease)
      } catch (error) {
        await this.#rejectAll(lease, error)
      }
      if (lease.queue.size === 0 || lease.isAsked) continue
      await lease.pause(Math.min(endsInMs, pauseMs * (0.5 + Math.random() / 2)))
      pauseMs = Math.min(LOOK_AGAIN_MS_MAX, 2 * pauseMs)
    }
    this.#waited.delete(lease.name)
  }

  async #rejectAll({ queue }: WaitedLease, error: unknown): Promise<void> {
    let answered = 0
    for (const waiting of queue) {
      this.#waiting.remove(waiting)
      waiting.reject(error)
      if (++answered % ANSWERED_TOGETHER_MAX === 0) await nextTurn()
    }
  }

  /**
   * Looks at the lease, and answers those whose waits are over or who get it, in the order of their arrival.
   * @returns milliseconds until the term ends.
   */
  async #answerSome({ name, queue }: WaitedLease): Promise<number> {
    // Who comes later is not judged by a look, or renewed from a moment, of before.
    const all = [...queue]
    const [first] = all
    let look = (first && (await this.#guess(first))) ?? (await this.#look(name))
    let areKeysLocked = false
    let answered = 0
    const answer = (waiting: WaitingHolder, state: LeaseState | KvError): void => {
      this.#waiting.remove(waiting)
      if (state instanceof KvError) waiting.reject(state)
      else waiting.resolve(state)
      answered++
    }
    for (const waiting of all) {
      if (!queue.has(waiting)) continue
      if (answered > 0 && answered % ANSWERED_TOGETHER_MAX === 0) await nextTurn()
      const { holder, ttlMs, fence } = waiting.request
      const backoff = new Backoff()
      for (;;) {
        const held = heldAt(look.lease, look.nowTs)
        const verdict = judgePut(waiting.request, held, held?.ttlMs)
        if (verdict === 'other_fence') {
          answer(waiting, otherFence(name, held && stateOf(name, held)))
          break
        }
        if (verdict === 'held') {
          if (isOver(waiting) || fence !== undefined) answer(waiting, heldByAnother(stateOf(name, held as LeaseRecord)))
          break
        }
        if (verdict === 'grant' && hasKeysToEnd(look.lease)) {
          const { holder: last } = look.lease as LeaseRecord
          if (!areKeysLocked && (await this.#endKeys(name, look, 'ranOut'))) {
            look = await this.#look(name)
            continue
          }
          areKeysLocked = true
          if (isOver(waiting)) answer(waiting, keysAreLocked(name, last, physicalMs(look.nowTs)))
          break
        }
        const next =
          verdict === 'grant'
            ? await this.#granted(look, holder, ttlMs)
            : renewal(held as LeaseRecord, ttlMs, look.nowTs)
        const swapped = await this.#records.swap(name, look, next)
        if (swapped === undefined) {
          await backoff.wait()
          look = await this.#look(name)
          continue
        }
        const before = look.lease
        look = { ...swapped, nowTs: look.nowTs }
        if (next.state === 'free') {
          this.#found.records++
          continue
        }
        if (verdict !== 'grant') this.#counts.renewals++
        else {
          this.#counts.grants++
          this.#names.add(name)
          if (before?.state === 'held') this.#counts.ranOut++
          else this.#found.held++
        }
        if (queue.has(waiting)) {
          answer(waiting, stateOf(name, next))
          break
        }
        // Its client has hung up meanwhile.
        if (verdict === 'grant' && (await this.#removed(name, look, 'released'))) look = await this.#look(name)
        break
      }
    }
    const held = heldAt(look.lease, look.nowTs)
    return held === undefined ? 0 : physicalMs(held.endsTs) - physicalMs(look.nowTs) + 1
  }

  /** Where nobody has held the lease, a record is made first: see `LeaseRecord`. */
  async #granted(look: Look, holder: string, ttlMs: number): Promise<LeaseRecord> {
    if (look.lease !== undefined) return grant(holder, ttlMs, await this.#now())
    await this.#requireRoom()
    return freeSince(look.nowTs)
  }

  async #look(name: string): Promise<Look> {
    const [seen, nowTs] = await Promise.all([this.#records.read(name), this.#now()])
    return { ...seen, nowTs }
  }

  /** A holder that has renewed here is likely to do so again, and the record to be as it was left. */
  async #guess({ name, request }: WaitingHolder): Promise<Look | undefined> {
    const guess = this.#records.guess(name)
    if (guess?.lease?.holder !== request.holder) return undefined
    const nowTs = await this.#now()
    const held = heldAt(guess.lease, nowTs)
    const isRenewal = held !== undefined && (request.fence ?? held.fence) === held.fence
    return isRenewal ? { ...guess, nowTs } : undefined
  }

  async #now(): Promise<Timestamp> {
    return this.#store.tso(1)
  }

  // ---- Ends

  /**
   * Deletes the keys of a grant that is over, or that its holder gives up, and its record after them.
   * @returns false: somebody was faster, or others have locked some of the keys. The record says that the lease ends then, or has changed.
   */
  async #endKeys(name: string, seen: SeenLease, end: 'released' | 'ranOut'): Promise<boolean> {
    const lease = seen.lease as LeaseRecord
    let ending: SeenLease | undefined = seen
    if (lease.state === 'held') {
      ending = await this.#records.swap(name, seen, { ...lease, state: 'ending' }) // From here on no transaction commits under it.
      if (ending === undefined) return false
      this.#counts[end]++
      this.#found.held--
      this.#found.ending++
    }
    if (!(await this.#options.keys.end(lease.fence)).isDone) return false
    this.#attaching.delete(lease.fence)
    if (await this.#records.swap(name, ending, undefined)) {
      // Else somebody else has done so.
      this.#found.records--
      this.#found.ending--
      this.#names.delete(name)
    }
    this.#waited.get(name)?.ask()
    return true
  }

  /** Removes a record without keys. @returns false: somebody was faster. */
  async #removed(name: string, seen: SeenLease, end: 'released' | 'ranOut'): Promise<boolean> {
    if (!(await this.#records.swap(name, seen, undefined))) return false
    this.#found.records--
    this.#names.delete(name)
    if (seen.lease?.state === 'held') {
      this.#counts[end]++
      this.#found.held--
    }
    this.#waited.get(name)?.ask()
    return true
  }

  /** @throws KvError `overloaded` */
  async #requireRoom(): Promise<void> {
    const { leasesMax } = this.#options.limits
    const isFull = (): boolean => this.#found.records >= leasesMax
    if (isFull() && this.#store.time.elapsedMs() - this.#found.atMs >= COUNT_AGAIN_MS)
      this.#count(await this.#records.list(''), await this.#now())
    if (isFull()) throw tooManyLeases(leasesMax)
  }

  #count(records: ReadonlyMap<string, SeenLease>, nowTs: Timestamp): void {
    let held = 0
    let ending = 0
    for (const { lease } of records.values()) {
      if (heldAt(lease, nowTs) !== undefined) held++
      else if (hasKeysToEnd(lease)) ending++
    }
    Object.assign(this.#found, { held, ending, records: records.size, atMs: this.#store.time.elapsedMs() })
    this.#names = new Set(records.keys())
  }

  #walkIn(ms: number): void {
    if (this.#isClosed) return
    this.#walkTimer = setTimeout(() => this.#walk(), ms * (0.75 + Math.random() / 2))
    this.#walkTimer.unref()
  }

  /** Each server goes over all leases: the one that granted a lease may have died. */
  #walk(): void {
    this.#walking ??= this.#endAll()
      .catch((error: unknown) => {
        if (!(error instanceof KvError)) this.#options.onError(error)
        return WALK_MS
      })
      .then((nextMs) => {
        this.#walking = undefined
        clearTimeout(this.#walkTimer)
        if (this.#options.walks) this.#walkIn(nextMs)
      })
  }

  /** @returns when to do so again. */
  async #endAll(): Promise<number> {
    const nowTs = await this.#now()
    const records = await this.#records.list('')
    this.#count(records, nowTs)
    const over: [string, SeenLease][] = []
    let hasKeys = false
    for (const [name, seen] of records) {
      const { lease } = seen
      hasKeys ||= hasKeysToEnd(lease)
      const isStale = lease?.state !== 'free' || lease.endsTs + timestampFromMs(FREE_MS_MAX) < nowTs
      if (heldAt(lease, nowTs) === undefined && isStale) over.push([name, seen])
    }
    // From anywhere on, so that servers which do so at the same time do not meet at each lease.
    const from = Math.floor(Math.random() * over.length)
    const left = [...over.slice(from), ...over.slice(0, from)]
    const end = async (): Promise<void> => {
      for (let one = left.pop(); one !== undefined && !this.#isClosed; one = left.pop()) await this.#end(...one)
    }
    await Promise.all(Array.from({ length: ENDED_TOGETHER }, end))
    return (hasKeys ? WALK_MS_WITH_KEYS : WALK_MS) * Math.max(1, records.size / WALK_LEASES)
  }

  async #end(name: string, seen: SeenLease): Promise<void> {
    if (hasKeysToEnd(seen.lease)) await this.#endKeys(name, seen, 'ranOut')
    else await this.#removed(name, seen, 'ranOut')
  }

  // ---- Time

  look(): void {
    this.#endWaits()
    for (const lease of this.#waited.values()) lease.ask()
    this.#walk()
  }

  #endWaits(): void {
    const over = this.#waiting.endedBy(this.#store.time.elapsedMs(), WAITING_MAX)
    for (const { name } of over) this.#waited.get(name)?.ask()
    this.#schedule()
  }

  #schedule(): void {
    const nextMs = this.#waiting.nextMs
    if (nextMs === undefined || this.#isClosed) return
    const nowMs = this.#store.time.elapsedMs()
    const atMs = Math.min(Math.max(nextMs, nowMs), nowMs + LOOK_MS_MAX)
    if (this.#timer !== undefined && this.#timerAtMs <= atMs) return
    clearTimeout(this.#timer)
    this.#timerAtMs = atMs
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined
        this.#endWaits()
      },
      Math.max(1, Math.ceil(atMs - nowMs)),
    )
    this.#timer.unref()
  }
}

function isOver({ isOver, request }: WaitingHolder): boolean {
  return isOver || (request.waitMs ?? 0) === 0
}

function stateOf(name: string, { holder, fence, ttlMs, endsTs }: LeaseRecord): LeaseState {
  return { name, holder, fence, ttlMs, expiresAtMs: physicalMs(endsTs) }
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve)
  })
}
