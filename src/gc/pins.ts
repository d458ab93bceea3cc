import { randomBytes } from 'node:crypto'
import { aboveSafePoint } from '../coordinator/above-safe-point.js'
import { invalid, KvError } from '../errors/kv-error.js'
import { PINS_MAX } from '../limits.js'
import { packRecord, unpackRecord } from '../percolator/codec/record.js'
import { belowSafePoint } from '../percolator/errors.js'
import type { Store } from '../store/store.js'
import type { SystemName } from '../store/system-records.js'
import { physicalMs, type Timestamp } from '../timestamp.js'
import type { Holder } from './safe-point.js'

export interface Pin {
  readonly pin: string
  readonly ts: Timestamp
  /** In the store's `steadyMs`. */
  readonly endsAtMs: number
}

const RECORDS = 'pin/' satisfies SystemName

/**
 * Snapshots that must stay readable. Clients create pins, which are stored and survive a restart. The server itself
 * holds snapshots while it reads or streams them.
 */
export class Pins {
  readonly #store: Store
  readonly #pins = new Map<string, Pin>()
  readonly #held = new Set<Holder>()
  /** The safe point to which a running collection raises; else 0. */
  #floor: Timestamp = 0

  private constructor(store: Store) {
    this.#store = store
  }

  static async open(store: Store): Promise<Pins> {
    const pins = new Pins(store)
    await pins.reload()
    return pins
  }

  /**
   * Reads the pins from the store, because other servers may have created or renewed some. A pin that another server
   * removed stays until it expires.
   */
  async reload(): Promise<void> {
    for (const [name, record] of await this.#store.system.list(RECORDS)) {
      const pin = decodePin(name.slice(RECORDS.length), record)
      if (pin.endsAtMs > (this.#pins.get(pin.pin)?.endsAtMs ?? 0)) this.#pins.set(pin.pin, pin)
    }
  }

  /**
   * Holds a snapshot, in this process only.
   * @returns the function that releases it.
   * @throws KvError `ts_below_safe_point`
   */
  hold(ts: Timestamp): () => void {
    this.#requireReadable(ts)
    const holder: Holder = { by: 'pin', ts }
    this.#held.add(holder)
    return () => this.#held.delete(holder)
  }

  /**
   * `hold` for a snapshot that can no longer change.
   * @param wanted default: now.
   * @throws KvError `ts_below_safe_point`; `invalid_argument` for a timestamp in the future.
   */
  async holdNow(wanted?: Timestamp): Promise<{ readonly ts: Timestamp; readonly release: () => void }> {
    const hold = async () => {
      const now = await this.#store.tso(1)
      const ts = wanted ?? now
      if (ts > now) throw invalid('ts', 'ts is in the future, where a snapshot can still change')
      return { ts, release: this.hold(ts) }
    }
    return wanted === undefined ? aboveSafePoint(hold) : hold()
  }

  /** @throws the errors of `holdNow`; KvError `overloaded` when there are `PINS_MAX` pins. */
  async create(wanted: { readonly ts?: Timestamp | undefined; readonly ttlMs: number }): Promise<Pin> {
    const { ttlMs } = wanted
    const { ts, release } = await this.holdNow(wanted.ts)
    try {
      await this.#dropExpired()
      if (this.#pins.size >= PINS_MAX) throw new KvError('overloaded', `there are ${PINS_MAX} pins already`, {})
      return await this.#put({ pin: randomBytes(12).toString('base64url'), ts, endsAtMs: this.#endOf(ttlMs) })
    } finally {
      release()
    }
  }

  /** Makes the pin expire `ttlMs` from now. @throws KvError `not_found` */
  async renew(id: string, ttlMs: number): Promise<Pin> {
    return this.#put({ ...this.#find(id), endsAtMs: this.#endOf(ttlMs) })
  }

  /** @throws KvError `not_found` */
  async remove(id: string): Promise<void> {
    this.#find(id)
    await this.#forget(id)
  }

  /** Unix milliseconds by the present clock. They change when the clock is set. */
  expiresAtMs({ endsAtMs }: Pin): number {
    return physicalMs(this.#store.now()) - this.#store.steadyMs() + endsAtMs
  }

  /** Pins that have not expired, in order of their snapshots, oldest first. */
  list(): Pin[] {
    return [...this.#pins.values()].filter((pin) => !this.#isExpired(pin)).sort((a, b) => a.ts - b.ts)
  }

  *holders(): Generator<Holder> {
    for (const { ts } of this.list()) yield { by: 'pin', ts }
    yield* this.#held
  }

  /** Refuses new pins below `safePoint` while `raise` runs. */
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

  #find(id: string): Pin {
    const pin = this.#pins.get(id)
    if (pin === undefined || this.#isExpired(pin)) throw new KvError('not_found', 'there is no such pin', {})
    return pin
  }

  /** The pin holds the safe point back at once. It is stored before the caller learns about it. */
  async #put(pin: Pin): Promise<Pin> {
    const before = this.#pins.get(pin.pin)
    this.#pins.set(pin.pin, pin)
    try {
      await this.#store.system.write([{ name: `${RECORDS}${pin.pin}`, value: packRecord([pin.ts, pin.endsAtMs]) }])
      return pin
    } catch (error) {
      if (before === undefined) this.#pins.delete(pin.pin)
      else this.#pins.set(pin.pin, before)
      throw error
    }
  }

  async #forget(id: string): Promise<void> {
    this.#pins.delete(id)
    await this.#store.system.write([{ name: `${RECORDS}${id}`, value: undefined }])
  }

  async #dropExpired(): Promise<void> {
    for (const pin of [...this.#pins.values()]) if (this.#isExpired(pin)) await this.#forget(pin.pin)
  }

  #endOf(ttlMs: number): number {
    return this.#store.steadyMs() + ttlMs
  }

  #isExpired({ endsAtMs }: Pin): boolean {
    return endsAtMs <= this.#store.steadyMs()
  }
}

function decodePin(pin: string, record: Uint8Array): Pin {
  const [ts, endsAtMs] = unpackRecord(record, 'pin', 2)
  return { pin, ts: Number(ts), endsAtMs: Number(endsAtMs) }
}
