import { randomBytes } from 'node:crypto'
import { type Page, type PageRequest, SortedMap } from '../bytes/sorted-map.js'
import type { Registry } from '../cluster/registry.js'
import { SingleServer } from '../cluster/single-server.js'
import { aboveSafePoint } from '../coordinator/above-safe-point.js'
import { invalid, KvError } from '../errors/kv-error.js'
import { PINS_MAX } from '../limits.js'
import { packRecord, unpackRecord } from '../percolator/codec/record.js'
import { belowSafePoint } from '../percolator/errors.js'
import { type RecordKind, RecordTable } from '../store/record-table.js'
import type { Store } from '../store/store.js'
import { physicalMs, type Timestamp } from '../timestamp.js'
import type { Holder } from './safe-point.js'

export interface Pin {
  readonly pin: string
  readonly ts: Timestamp
  /** In the store's `steadyMs`. */
  readonly endsAtMs: number
}

export interface HeldTimestamp {
  readonly ts: Timestamp
  readonly release: () => void
}

const PINS: RecordKind<Pin> = {
  prefix: 'pin/',
  encode: ({ ts, endsAtMs }) => packRecord([ts, endsAtMs]),
  decode: (pin, record) => {
    const [ts, endsAtMs] = unpackRecord(record, 'pin', 2)
    return { pin, ts: Number(ts), endsAtMs: Number(endsAtMs) }
  },
}
/**
 * On a shared store, a pin holds the safe point back this much longer. A renewal in time may land after its end, and a server
 * knows the time that all share only by the leader's last answer, so it may renew a pin that is over for another server.
 */
const SHARED_GRACE_MS = 60_000

/**
 * Snapshots that must stay readable. Clients create pins, which are stored and survive a restart. The server itself holds
 * snapshots while it reads or streams them.
 *
 * Where several servers share the store, memory holds the pins of all of them as this server has last read them.
 */
export class Pins {
  readonly #store: Store
  readonly #registry: Registry
  readonly #pins: RecordTable<Pin>
  readonly #held = new Set<Holder>()
  /** The safe point that a running collection raises to; 0 while none runs. */
  #floor: Timestamp = 0

  private constructor(store: Store, registry: Registry) {
    this.#store = store
    this.#registry = registry
    this.#pins = new RecordTable(store.system, PINS)
  }

  static async open(store: Store, registry: Registry = new SingleServer()): Promise<Pins> {
    const pins = new Pins(store, registry)
    await pins.reload()
    return pins
  }

  /** Reads the pins from the store, because other servers may have created, renewed or removed some. */
  async reload(): Promise<void> {
    await this.#pins.load()
  }

  /**
   * Holds a snapshot, in this process only.
   * @returns the function that releases it.
   * @throws KvError `ts_below_safe_point`
   */
  hold(ts: Timestamp): () => void {
    this.#requireReadable(ts)
    return this.#keep(ts)
  }

  #keep(ts: Timestamp): () => void {
    const holder: Holder = { by: 'pin', ts }
    this.#held.add(holder)
    return () => this.#held.delete(holder)
  }

  /**
   * Holds the snapshot at the timestamp that `take` gets. No collection passes it meanwhile. @throws KvError
   * `ts_below_safe_point`
   */
  async holdNext(take: () => Timestamp | Promise<Timestamp>): Promise<HeldTimestamp> {
    const release = this.#keep(this.#store.time.nextTsMin)
    try {
      const ts = await take()
      return { ts, release: this.hold(ts) }
    } finally {
      release()
    }
  }

  /**
   * `hold` for a snapshot that can no longer change.
   * @param wanted default: now.
   * @throws KvError `ts_below_safe_point`; `invalid_argument` for a timestamp in the future.
   */
  async holdNow(wanted?: Timestamp): Promise<HeldTimestamp> {
    if (wanted === undefined) return aboveSafePoint(() => this.holdNext(() => this.#store.tso(1)))
    const now = await this.#store.tso(1)
    if (wanted > now) throw invalid('ts', 'ts is in the future, where a snapshot can still change')
    const release = this.hold(wanted)
    try {
      if (this.#registry.isShared) await this.#requireUnpassed(wanted)
      return { ts: wanted, release }
    } catch (error) {
      release()
      throw error
    }
  }

  /**
   * A server that collects announces how far it will go, and then looks at what the others hold. So either it sees what this
   * server holds, or this server sees the announcement.
   */
  async #requireUnpassed(ts: Timestamp): Promise<void> {
    await this.#registry.publish()
    const announced = await this.#registry.announced()
    if (ts < announced) throw belowSafePoint(ts, announced)
  }

  /** @throws the errors of `holdNow`; KvError `overloaded` when there are `PINS_MAX` pins, as far as this server knows. */
  async create(wanted: { readonly ts?: Timestamp | undefined; readonly ttlMs: number }): Promise<Pin> {
    const { ttlMs } = wanted
    const { ts, release } = await this.holdNow(wanted.ts)
    try {
      await this.#dropExpired()
      if (this.#pins.size >= PINS_MAX) throw new KvError('overloaded', `there are ${PINS_MAX} pins already`, {})
      const pin = { pin: randomBytes(12).toString('base64url'), ts, endsAtMs: this.#endOf(ttlMs) }
      return await this.#pins.change(pin.pin, () => pin)
    } finally {
      release()
    }
  }

  /** Makes the pin expire `ttlMs` from now. @throws KvError `not_found` */
  renew(id: string, ttlMs: number): Promise<Pin> {
    return this.#change(id, (pin) => ({ ...pin, endsAtMs: this.#endOf(ttlMs) }))
  }

  /** @throws KvError `not_found` */
  async remove(id: string): Promise<void> {
    await this.#change(id, () => undefined)
  }

  async #change<P extends Pin | undefined>(id: string, decide: (pin: Pin) => P): Promise<P> {
    if (!isPinId(id)) throw noSuchPin()
    return this.#pins.change(id, (pin) => {
      if (pin === undefined || this.#isExpired(pin)) throw noSuchPin()
      return decide(pin)
    })
  }

  /** Unix milliseconds by the present clock. They change when the clock is set. */
  expiresAtMs({ endsAtMs }: Pin): number {
    return physicalMs(this.#store.now()) - this.#store.time.steadyMs() + endsAtMs
  }

  /**
   * Unexpired pins in the order of their snapshots, oldest first. On a shared store: as this server has last read them.
   */
  list(): Pin[] {
    return [...this.#pins.values()].filter((pin) => !this.#isExpired(pin)).sort((a, b) => a.ts - b.ts)
  }

  /** A page of the pins of all servers. `prefix` is one of pin names; `after` is a `placeOf`. */
  async page({ prefix = '', after, limit }: PageRequest): Promise<Page<Pin>> {
    if (this.#registry.isShared) await this.reload()
    const places = new SortedMap<Pin>()
    for (const pin of this.list()) if (pin.pin.startsWith(prefix)) places.set(placeOf(pin), pin)
    return places.page({ after, limit })
  }

  *holders(): Generator<Holder> {
    for (const pin of this.#pins.possible()) if (!this.#isExpired(pin, this.#graceMs)) yield { by: 'pin', ts: pin.ts }
    yield* this.#held
  }

  held(): Iterable<Holder> {
    return this.#held
  }

  async refusingBelow<T>(safePoint: Timestamp, raise: () => Promise<T>): Promise<T> {
    this.#floor = safePoint
    try {
      return await raise()
    } finally {
      this.#floor = 0
    }
  }

  #requireReadable(ts: Timestamp): void {
    const safePoint = Math.max(this.#floor, this.#store.safePoint)
    if (ts < safePoint) throw belowSafePoint(ts, safePoint)
  }

  async #dropExpired(): Promise<void> {
    if (this.#registry.isShared) await this.reload()
    const isOver = (pin: Pin): boolean => this.#isExpired(pin, this.#graceMs)
    // Another server may renew it at this moment.
    for (const { pin } of [...this.#pins.possible()].filter(isOver))
      await this.#pins.change(pin, (stored) => (stored === undefined || isOver(stored) ? undefined : stored))
  }

  #endOf(ttlMs: number): number {
    return this.#store.time.steadyMs() + ttlMs
  }

  get #graceMs(): number {
    return this.#registry.isShared ? SHARED_GRACE_MS : 0
  }

  #isExpired({ endsAtMs }: Pin, graceMs = 0): boolean {
    return endsAtMs + graceMs <= this.#store.time.steadyMs()
  }
}

/** Only such names become row keys, whatever a client sends. */
function isPinId(id: string): boolean {
  return /^[\w-]{16}$/.test(id)
}

/** Sorts as `ts` does. */
function placeOf({ ts, pin }: Pin): string {
  return `${String(ts).padStart(16, '0')}/${pin}`
}

function noSuchPin(): KvError<'not_found'> {
  return new KvError('not_found', 'there is no such pin', {})
}
