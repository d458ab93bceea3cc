import { MinHeap, type Ranked } from '../bytes/min-heap.js'
import { invalid, KvError } from '../errors/kv-error.js'
import { requireWanted, signalOf } from '../event-loop/late-signal.js'
import { LEASE_TTL_MS_MAX, LEASE_TTL_MS_MIN, LEASE_WAIT_MS_MAX, type Limits } from '../limits.js'
import { decodeLease, encodeLease } from '../percolator/codec/lease.js'
import { isLeaseName, LEASE_NAME, type StoredLease } from '../percolator/lease.js'
import type { LeaseRequest, LeaseState, LeasesApi } from '../percolator/leases-api.js'
import type { Store } from '../store/store.js'
import type { SystemName, SystemWrite } from '../store/system-records.js'
import { physicalMs, type Timestamp } from '../timestamp.js'

const LEASES: SystemName = 'lease/'
/** The end of a lease is noticed so soon, whatever timers do. */
const LOOK_MS_MAX = 1000
const HOLDER = /^[\x20-\x7e]{1,255}$/
/** A removal of records that has failed is tried again. */
const REMOVE_AGAIN_MS = 1000

export interface LeasesOptions {
  readonly limits: Pick<Limits, 'leasesMax'>
  /** Milliseconds that pass as time does. Default: those of the process. */
  readonly monotonicNow?: (() => number) | undefined
  readonly onError: (error: unknown) => void
}

/** A lease that somebody holds. Ranked by when it ends, in monotonic milliseconds. */
class HeldLease implements Ranked {
  rank = 0
  place = -1
  constructor(
    readonly name: string,
    public stored: StoredLease,
  ) {}
}

interface Waiter {
  readonly request: LeaseRequest
  /** Tells that the lease is free, or held by the waiter's holder. */
  readonly wake: () => void
}

/**
 * Leases under fences: one holder per name, for a time that it renews. A grant is on disk before it is answered. Renewals and the time are
 * in memory only: a restart counts as a renewal of every lease that was stored, so that no holder loses one by a crash. The time is that
 * of a clock that nobody sets.
 */
export class Leases implements LeasesApi {
  readonly #store: Store
  readonly #options: LeasesOptions
  readonly #monotonicNow: () => number
  readonly #held = new Map<string, HeldLease>()
  readonly #byEnd = new MinHeap<HeldLease>()
  /** Names of which a record is being written: nobody is granted them meanwhile. */
  readonly #writing = new Set<string>()
  readonly #waiting = new Map<string, Waiter[]>()
  /** Records of leases that are over. */
  readonly #over = new Set<string>()
  #timer: NodeJS.Timeout | undefined
  #removing: Promise<void> | undefined
  #isClosed = false

  /** Knows of no leases until it is opened. */
  private constructor(store: Store, options: LeasesOptions) {
    this.#store = store
    this.#options = options
    this.#monotonicNow = options.monotonicNow ?? (() => performance.now())
    store.leases.listen({ fenceOf: (name) => this.#heldNow(name)?.stored.fence ?? 0 })
  }

  static async open(store: Store, options: LeasesOptions): Promise<Leases> {
    const leases = new Leases(store, options)
    for (const [record, value] of await store.system.list(LEASES))
      leases.#hold(new HeldLease(record.slice(LEASES.length), decodeLease(value)))
    leases.#schedule()
    return leases
  }

  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    for (const waiters of this.#waiting.values()) for (const waiter of [...waiters]) waiter.wake()
    await this.#removing
  }

  /** Those that are held, and requests that wait for one. */
  summary(): { readonly count: number; readonly waiting: number } {
    let waiting = 0
    for (const waiters of this.#waiting.values()) waiting += waiters.length
    return { count: this.#held.size, waiting }
  }

  // ---- Calls

  async put(name: string, request: LeaseRequest): Promise<LeaseState> {
    requireLeaseName(name)
    this.#requireSound(request)
    const { waitMs = 0, signal } = request
    const deadlineMs = this.#monotonicNow() + waitMs
    for (let isFirst = true; ; isFirst = false) {
      requireWanted(signal)
      if (this.#isClosed) throw new KvError('overloaded', 'the server is shutting down', {})
      const state = await this.#tryPut(name, request, isFirst)
      if (state !== undefined) return state
      const leftMs = deadlineMs - this.#monotonicNow()
      if (leftMs <= 0) throw this.#heldByAnother(name)
      await this.#wait(name, request, leftMs)
    }
  }

  #requireSound({ holder, ttlMs, waitMs = 0 }: LeaseRequest): void {
    const { name, capabilities } = this.#store
    if (!capabilities.onePhaseCommit)
      throw new KvError('not_found', `the store ${name} has no leases, because it cannot commit in one phase`, {})
    if (!HOLDER.test(holder)) throw invalid('holder', 'the holder must be 1 to 255 printable characters')
    requireWithin('ttl_ms', ttlMs, LEASE_TTL_MS_MIN, LEASE_TTL_MS_MAX)
    requireWithin('wait_ms', waitMs, 0, LEASE_WAIT_MS_MAX)
  }

  /** @param isFirst goes behind those that wait. @returns undefined when another holds it, or is about to. */
  async #tryPut(name: string, request: LeaseRequest, isFirst: boolean): Promise<LeaseState | undefined> {
    const { holder, ttlMs, fence } = request
    const held = this.#heldNow(name)
    if (fence !== undefined && held?.stored.fence !== fence) throw this.#otherFence(name, held)
    if (held?.stored.holder === holder) return this.#renew(held, ttlMs)
    const isTaken = held !== undefined || this.#writing.has(name)
    if (isTaken || (isFirst && this.#waiting.has(name))) return undefined
    if (this.#held.size + this.#writing.size >= this.#options.limits.leasesMax)
      throw new KvError('overloaded', `there are ${this.#options.limits.leasesMax} leases already`, {})
    return this.#grant(name, holder, ttlMs)
  }

  async #renew(held: HeldLease, ttlMs: number): Promise<LeaseState> {
    const { name, stored } = held
    if (stored.ttlMs !== ttlMs && !this.#writing.has(name)) {
      const renewed = { ...stored, ttlMs }
      await this.#write(name, renewed)
      if (this.#heldNow(name) !== held) throw this.#otherFence(name, this.#heldNow(name))
      held.stored = renewed
    }
    this.#hold(held)
    return this.#stateOf(held)
  }

  async #grant(name: string, holder: string, ttlMs: number): Promise<LeaseState> {
    this.#writing.add(name)
    try {
      const stored = { holder, ttlMs, fence: await this.#store.tso(1) }
      await this.#store.system.write([recordOf(name, stored)])
      this.#over.delete(name)
      const held = new HeldLease(name, stored)
      this.#hold(held)
      return this.#stateOf(held)
    } finally {
      this.#writing.delete(name)
      this.#wakeNext(name)
    }
  }

  async #write(name: string, stored: StoredLease): Promise<void> {
    this.#writing.add(name)
    try {
      await this.#store.system.write([recordOf(name, stored)])
    } finally {
      this.#writing.delete(name)
      this.#wakeNext(name)
    }
  }

  async get(name: string): Promise<LeaseState> {
    requireLeaseName(name)
    const held = this.#heldNow(name)
    if (held === undefined) throw new KvError('not_found', `nobody holds the lease ${name}`, {})
    return this.#stateOf(held)
  }

  async list(prefix = ''): Promise<readonly LeaseState[]> {
    this.#endOver()
    const held = [...this.#held.values()].filter(({ name }) => name.startsWith(prefix))
    return held.sort((a, b) => (a.name < b.name ? -1 : 1)).map((lease) => this.#stateOf(lease))
  }

  async remove(name: string, holder: string, fence?: Timestamp): Promise<void> {
    requireLeaseName(name)
    const held = this.#heldNow(name)
    if (held === undefined) return
    if (held.stored.holder !== holder || (fence ?? held.stored.fence) !== held.stored.fence)
      throw this.#otherFence(name, held)
    this.#end(held) // From this turn on no transaction commits under its fence.
    await this.#removeOver()
  }

  // ---- Time

  #heldNow(name: string): HeldLease | undefined {
    const held = this.#held.get(name)
    if (held === undefined || held.rank > this.#monotonicNow()) return held
    this.#end(held)
    return undefined
  }

  #hold(held: HeldLease): void {
    this.#held.set(held.name, held)
    this.#byEnd.set(held, this.#monotonicNow() + held.stored.ttlMs)
    this.#schedule()
  }

  #end(held: HeldLease): void {
    this.#held.delete(held.name)
    this.#byEnd.delete(held)
    this.#over.add(held.name)
    this.#wakeNext(held.name)
    this.#schedule()
  }

  #schedule(): void {
    if (this.#timer !== undefined || this.#isClosed) return
    const first = this.#byEnd.first
    if (first === undefined && this.#over.size === 0) return
    const inMs = first === undefined ? REMOVE_AGAIN_MS : first.rank - this.#monotonicNow()
    this.#timer = setTimeout(() => this.#onTime(), Math.min(LOOK_MS_MAX, Math.max(1, Math.ceil(inMs))))
    this.#timer.unref()
  }

  #onTime(): void {
    this.#timer = undefined
    this.#endOver()
    if (this.#over.size > 0)
      this.#removeOver().catch((error) => {
        if (!(error instanceof KvError)) this.#options.onError(error)
      })
    this.#schedule()
  }

  #endOver(): void {
    const now = this.#monotonicNow()
    for (let first = this.#byEnd.first; first !== undefined && first.rank <= now; first = this.#byEnd.first)
      this.#end(first)
  }

  /** Removes the records of leases that are over. A grant that is being written has one of its own. */
  async #removeOver(): Promise<void> {
    while (this.#removing !== undefined) await this.#removing.catch(() => {})
    const names = [...this.#over].filter((name) => !this.#held.has(name) && !this.#writing.has(name))
    if (names.length === 0) return
    for (const name of names) this.#writing.add(name)
    this.#removing = this.#store.system
      .write(names.map((name) => ({ name: `${LEASES}${name}` as const, value: undefined })))
      .then(() => {
        for (const name of names) this.#over.delete(name)
      })
      .finally(() => {
        this.#removing = undefined
        for (const name of names) {
          this.#writing.delete(name)
          this.#wakeNext(name)
        }
      })
    await this.#removing
  }

  // ---- Waiting, in the order of arrival

  #wait(name: string, request: LeaseRequest, ms: number): Promise<void> {
    return new Promise((resolve) => {
      const waiters = this.#waiting.get(name) ?? []
      const signal = signalOf(request.signal)
      const wake = (): void => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', wake)
        const at = waiters.indexOf(waiter)
        if (at !== -1) waiters.splice(at, 1)
        if (waiters.length === 0) this.#waiting.delete(name)
        resolve()
        // It may not want the lease any more.
        if (at === 0) setImmediate(() => this.#wakeNext(name))
      }
      const waiter: Waiter = { request, wake }
      const timer = setTimeout(wake, ms)
      waiters.push(waiter)
      this.#waiting.set(name, waiters)
      signal?.addEventListener('abort', wake, { once: true })
      if (signal?.aborted) wake()
    })
  }

  #wakeNext(name: string): void {
    const waiters = this.#waiting.get(name)
    if (waiters === undefined || this.#writing.has(name)) return
    const held = this.#held.get(name)
    if (held === undefined) waiters[0]?.wake()
    else for (const waiter of [...waiters]) if (waiter.request.holder === held.stored.holder) waiter.wake()
  }

  // ---- Answers

  #stateOf({ name, stored, rank }: HeldLease): LeaseState {
    return { name, ...stored, expiresAtMs: this.#expiresAtMs(rank) }
  }

  #expiresAtMs(rank: number): number {
    return Math.ceil(physicalMs(this.#store.now()) + rank - this.#monotonicNow())
  }

  #heldByAnother(name: string): KvError<'lease_held'> {
    const held = this.#heldNow(name)
    const holder = held?.stored.holder ?? ''
    const expiresAt = new Date(this.#expiresAtMs(held?.rank ?? this.#monotonicNow())).toISOString()
    const detail = held === undefined ? `others wait for the lease ${name}` : `the lease ${name} is held by ${holder}`
    return new KvError('lease_held', detail, { lease: name, holder, expiresAt })
  }

  #otherFence(name: string, held: HeldLease | undefined): KvError<'precondition_failed'> {
    if (held === undefined)
      return new KvError('precondition_failed', `nobody holds the lease ${name}`, { lease: name, fence: 0 })
    const { holder, fence } = held.stored
    const detail = `the lease ${name} is held by ${holder} under the fence ${fence}`
    const expiresAt = new Date(this.#expiresAtMs(held.rank)).toISOString()
    return new KvError('precondition_failed', detail, { lease: name, holder, fence, expiresAt })
  }
}

/** @throws KvError `invalid_argument` */
export function requireLeaseName(name: string): void {
  if (!isLeaseName(name)) throw invalid('name', `the name of a lease must ${LEASE_NAME.rule}`)
}

function requireWithin(field: string, value: number, min: number, max: number): void {
  if (Number.isSafeInteger(value) && value >= min && value <= max) return
  throw invalid(field, `${field} must be an integer from ${min} to ${max}`)
}

function recordOf(name: string, stored: StoredLease): SystemWrite {
  return { name: `${LEASES}${name}`, value: encodeLease(stored) }
}
