import { type Page, type PageRequest, SortedMap } from '../bytes/sorted-map.js'
import type { Awaitable } from '../event-loop/after.js'
import { TimeSlicer } from '../event-loop/time-slicer.js'
import type { Limits } from '../limits.js'
import type { Store } from '../store/store.js'
import type { SystemWrite } from '../store/system-records.js'
import { physicalMs, type Timestamp } from '../timestamp.js'
import { LEASES, type LeaseTerms, type OverLeases, type SeenLease } from './lease-terms.js'
import { tooManyLeases } from './refusals.js'
import { decodeLease, encodeLease } from './rules/codec/lease.js'
import { hasKeysToEnd, type LeaseRecord } from './rules/lease-record.js'
import type { LeaseRequest, LeaseState } from './rules/leases-api.js'

/**
 * A restart extends all terms by this, for clients that find the server again after a back-off. A lease then ends at the latest
 * one TTL and this much after the server is back.
 */
const RESTART_MS = 2000
/** Shortest interval between two looks for leases that are over. It doubles while some of them could not be ended. */
const LOOK_MS_MIN = 10
const LOOK_MS_MAX = 1000

/** The state of one lease. */
class Slot {
  /** The grant is in force until then, by `TimeSource.elapsedMs`. */
  endsAtMs = Number.NEGATIVE_INFINITY
  /** A write has failed: the record on disk is unknown. */
  isInDoubt = false
  /** Pending while the record is written or removed. Never rejects. */
  writing: Promise<void> | undefined

  constructor(
    readonly name: string,
    public record: LeaseRecord,
  ) {}
}

/**
 * Terms of leases that one process grants. Grants, releases and other TTLs are on disk before they are answered. Renewals are in
 * memory, and a restart counts as a renewal of every lease, so that no holder loses one by a crash.
 *
 * Terms are measured by a monotonic clock and not by timestamps, which run ahead of the clock after a burst and jump with it:
 * neither may end a lease. In the order of timestamps a term still ends before the next one begins: a commit_ts that is fixed
 * while a fence is in force is below every later timestamp, and so below the fence of the next grant. The disk does not affect
 * terms: a slow write neither ends nor extends a lease.
 *
 * A grant is in force once its record is written. A release takes the fence out of force before it removes the record. After a
 * failed write nobody knows which record stands: the lease of a failed grant or release counts as over, and the next grant
 * overwrites it. After a failed write of another TTL the holder keeps the lease, and each renewal writes it again.
 */
export class TermsInMemory implements LeaseTerms {
  readonly #store: Store
  readonly #leasesMax: number
  readonly #slots = new SortedMap<Slot>()
  #againMs = LOOK_MS_MIN

  private constructor(store: Store, leasesMax: number) {
    this.#store = store
    this.#leasesMax = leasesMax
  }

  /**
   * @param attached the fences that may have attached keys. @returns also those without a lease: a repair may have lost its
   *   record.
   */
  static async open(
    store: Store,
    { leasesMax }: Pick<Limits, 'leasesMax'>,
    attached: ReadonlySet<Timestamp>,
  ): Promise<{ readonly terms: TermsInMemory; readonly orphans: ReadonlySet<Timestamp> }> {
    const terms = new TermsInMemory(store, leasesMax)
    const orphans = new Set(attached)
    for (const [stored, bytes] of await store.system.list(LEASES)) {
      const record = decodeLease(bytes)
      const slot = terms.#add(stored.slice(LEASES.length), { ...record, hasKeys: orphans.delete(record.fence) })
      if (record.state === 'held') terms.#extend(slot, RESTART_MS)
    }
    return { terms, orphans }
  }

  has(name: string): boolean {
    return this.#slots.has(name)
  }

  counts(): { readonly held: number; readonly ending: number } {
    const nowMs = this.#store.time.elapsedMs()
    let held = 0
    let ending = 0
    for (const { record, endsAtMs } of this.#slots.values()) {
      if (nowMs < endsAtMs) held++
      else if (hasKeysToEnd(record)) ending++
    }
    return { held, ending }
  }

  fencesAt(names: readonly string[]): readonly Timestamp[] {
    return names.map((name) => {
      const slot = this.#slots.get(name)
      return slot !== undefined && this.#isHeld(slot) ? slot.record.fence : 0
    })
  }

  renew(
    name: string,
    { holder, ttlMs, fence }: Pick<LeaseRequest, 'holder' | 'ttlMs' | 'fence'>,
  ): LeaseState | undefined {
    const slot = this.#slots.get(name)
    if (slot === undefined || slot.record.holder !== holder || !this.#isHeld(slot)) return undefined
    const { record, isInDoubt, writing } = slot
    if ((fence ?? record.fence) !== record.fence) return undefined
    this.#extend(slot) // However long the disk takes.
    return ttlMs === record.ttlMs && !isInDoubt && writing === undefined ? this.#stateOf(slot) : undefined
  }

  held(name: string): LeaseState | undefined {
    const slot = this.#slots.get(name)
    return slot && this.#heldOf(slot)
  }

  async page(request: PageRequest, mayAccess?: (name: string) => boolean): Promise<Page<LeaseState>> {
    const isShown = (slot: Slot): boolean => this.#isHeld(slot) && mayAccess?.(slot.name) !== false
    const { items, next } = await this.#slots.page(request, isShown)
    return { items: items.flatMap((slot) => this.#heldOf(slot) ?? []), next }
  }

  look(name: string): Awaitable<SeenLease> {
    const slot = this.#slots.get(name)
    return slot?.writing === undefined ? this.#seen(slot) : slot.writing.then(() => this.look(name))
  }

  swap(name: string, seen: SeenLease, next: LeaseRecord | undefined): Awaitable<SeenLease | undefined> {
    const slot = this.#slots.get(name)
    if (slot?.record !== seen.record || slot?.writing !== undefined) return undefined
    if (slot === undefined) return this.#seen(next && this.#add(name, next)) // A free lease, of which nothing is written.
    const { record, isInDoubt } = slot
    if (next === undefined) {
      if (record.state !== 'free') return this.#write(slot, next)
      this.#slots.delete(name)
      return this.#seen(undefined)
    }
    const isStored = next.fence === record.fence && next.state === record.state && next.ttlMs === record.ttlMs
    if (!isStored || isInDoubt) return this.#write(slot, next)
    slot.record = next
    if (next.hasKeys === record.hasKeys) this.#extend(slot)
    return this.#seen(slot)
  }

  requireRoom(): void {
    if (this.#slots.size >= this.#leasesMax) throw tooManyLeases(this.#leasesMax)
  }

  async over(): Promise<OverLeases> {
    const slicer = new TimeSlicer()
    const nowMs = this.#store.time.elapsedMs()
    const over: [string, SeenLease][] = []
    let soonestMs = Number.POSITIVE_INFINITY
    for (const slot of this.#slots.values()) {
      if (nowMs < slot.endsAtMs) soonestMs = Math.min(soonestMs, slot.endsAtMs)
      else if (slot.writing === undefined) over.push([slot.name, this.#seen(slot)])
      const paused = slicer.next()
      if (paused !== undefined) await paused
    }
    this.#againMs = over.length === 0 ? LOOK_MS_MIN : Math.min(LOOK_MS_MAX, 2 * this.#againMs)
    const againMs = over.length === 0 ? LOOK_MS_MAX : this.#againMs
    const nextMs = Math.min(againMs, Math.max(LOOK_MS_MIN, soonestMs - nowMs))
    return { over, nextMs: this.#slots.size === 0 ? Number.POSITIVE_INFINITY : nextMs }
  }

  #add(name: string, record: LeaseRecord): Slot {
    const slot = new Slot(name, record)
    this.#slots.set(name, slot)
    return slot
  }

  #write(slot: Slot, next: LeaseRecord | undefined): Promise<SeenLease> {
    const { name, record } = slot
    if (next?.state !== 'held') slot.endsAtMs = Number.NEGATIVE_INFINITY // From this turn on no transaction commits under its fence.
    slot.isInDoubt = true
    const value = next && encodeLease({ ...next, endsTs: 0, hasKeys: false })
    const change: SystemWrite = { name: `${LEASES}${name}`, value }
    const written = this.#store.system
      .write([change])
      .then(
        () => this.#written(slot, next),
        (error) => {
          // A record of the grant may exist. Its term is over, and no holder knows its fence.
          if (next?.state === 'held' && next.fence !== record.fence) slot.record = next
          throw error
        },
      )
      .finally(() => {
        slot.writing = undefined
      })
    slot.writing = written.then(
      () => {},
      () => {},
    )
    return written
  }

  #written(slot: Slot, next: LeaseRecord | undefined): SeenLease {
    slot.isInDoubt = false
    if (next === undefined) {
      this.#slots.delete(slot.name)
      return this.#seen(undefined)
    }
    slot.record = next
    // Also when its term has ended meanwhile: nobody else was granted the lease.
    if (next.state === 'held') slot.endsAtMs = this.#store.time.elapsedMs() + next.ttlMs
    return this.#seen(slot)
  }

  #extend(slot: Slot, graceMs = 0): void {
    slot.endsAtMs = Math.max(slot.endsAtMs, this.#store.time.elapsedMs() + slot.record.ttlMs + graceMs)
  }

  #isHeld({ endsAtMs }: Slot): boolean {
    return this.#store.time.elapsedMs() < endsAtMs
  }

  #heldOf(slot: Slot): LeaseState | undefined {
    return this.#isHeld(slot) ? this.#stateOf(slot) : undefined
  }

  #seen(slot: Slot | undefined): SeenLease {
    return { record: slot?.record, held: slot && this.#heldOf(slot), nowTs: this.#store.now() }
  }

  #stateOf({ name, record, endsAtMs }: Slot): LeaseState {
    const { holder, fence, ttlMs } = record
    // By the present clock, and different once the clock is set.
    const expiresAtMs = Math.ceil(physicalMs(this.#store.now()) + endsAtMs - this.#store.time.elapsedMs())
    return { name, holder, fence, ttlMs, expiresAtMs }
  }
}
