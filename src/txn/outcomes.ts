import { keyText } from '../bytes/key-text.js'
import { KvError } from '../errors/kv-error.js'
import { IDEMPOTENCY_MS, type Limits } from '../limits.js'
import type { Store } from '../store/store.js'
import type { SystemName, SystemWrite } from '../store/system-records.js'
import { encodeOutcome, type Idempotency, isOutcomeExpired, type Once, replay } from './idempotency.js'

const RECORDS = 'outcome/' satisfies SystemName

type OutcomeLimits = Pick<Limits, 'outcomeBytesMax' | 'outcomesBytesMax'>

/** One caller of several may have this share of all that is stored. */
const SHARE_OF_A_CALLER = 0.5
/** Outcomes that are stored in this time are forgotten together in the counts of their callers. */
const PERIOD_MS = 60_000

/** `written`: outcomes of what writes something. Reads run again instead: their answers may be as long as they like. */
export type Stores = 'all' | 'written' | 'nothing'

/** Outcomes that were stored in one period. */
interface Period {
  /** When the last of them expires. */
  readonly expiresAtMs: number
  /** By caller. */
  readonly bytes: Map<string | undefined, number>
}

/** The outcomes of requests with an idempotency key: each takes effect once, and what is stored for it is bounded. */
export class Outcomes {
  readonly #store: Store
  readonly #limits: OutcomeLimits
  /** Of all that are stored; those of an earlier run are counted by the first collection. */
  #bytes = 0
  readonly #ofCaller = new Map<string | undefined, number>()
  #periods: Period[] = []

  constructor(store: Store, limits: OutcomeLimits) {
    this.#store = store
    this.#limits = limits
  }

  /** Of all that are stored. */
  get bytes(): number {
    return this.#bytes
  }

  /**
   * Runs a request, or answers what it answered before. A repeat that comes while the first still runs waits for it.
   * @param idempotency undefined: there is nothing to remember, and it simply runs.
   * @param stores where nothing is stored, a repeat runs again.
   * @param run is given the function that makes what is to be stored with its commit, in the same atomic batch; undefined:
   *   nothing.
   * @throws KvError `idempotency_mismatch`; `overloaded` or `payload_too_large`, before anything is written, where the
   *   outcome has no room; and what `run` throws. Nothing is remembered of a failure.
   */
  async once<T extends object>(
    idempotency: Idempotency | undefined,
    stores: Stores,
    run: (beside: ((answer: T) => readonly SystemWrite[]) | undefined) => Promise<T>,
  ): Promise<Once<T>> {
    if (idempotency === undefined) return { answer: await run(undefined), isReplayed: false }
    const { system } = this.#store
    const name: SystemName = `${RECORDS}${keyText(idempotency.key)}`
    return system.hold([name], async () => {
      const nowMs = this.#store.steadyMs()
      const isLive = (found: Uint8Array): boolean => !isOutcomeExpired(found, nowMs)
      const record = await system.get(name, isLive)
      if (record !== undefined && isLive(record)) return { answer: replay<T>(record, idempotency), isReplayed: true }
      if (stores !== 'nothing') this.#requireRoom(idempotency.caller)
      let value: Uint8Array | undefined
      const answer = await run((stored) => {
        value = this.#recordOf(idempotency, nowMs, stored)
        return [{ name, value }]
      })
      if (value === undefined && stores === 'all') {
        value = this.#recordOf(idempotency, nowMs, answer)
        await system.write([{ name, value }])
      }
      if (value !== undefined)
        this.#add(idempotency.caller, idempotency.key.length + value.length, nowMs + IDEMPOTENCY_MS)
      return { answer, isReplayed: false }
    })
  }

  /** Removes those that have expired, and counts the others. */
  async collect(): Promise<void> {
    const nowMs = this.#store.steadyMs()
    const before = this.#bytes
    const kept = await this.#store.system.sweep(RECORDS, (record) => isOutcomeExpired(record, nowMs))
    this.#bytes += kept - before // What was stored meanwhile stays counted.
    const isOver = ({ expiresAtMs }: Period): boolean => expiresAtMs <= nowMs
    for (const { bytes } of this.#periods.filter(isOver))
      for (const [caller, some] of bytes) this.#count(this.#ofCaller, caller, -some)
    this.#periods = this.#periods.filter((period) => !isOver(period))
  }

  /** @throws KvError `payload_too_large` */
  #recordOf(idempotency: Idempotency, nowMs: number, answer: object): Uint8Array {
    const { outcomeBytesMax: limit } = this.#limits
    const record = isLongerThan(limit, answer) ? undefined : encodeOutcome(idempotency, nowMs, answer)
    if (record !== undefined && record.length <= limit) return record
    const detail = `the outcome to be stored under the Idempotency-Key has over ${limit} bytes: read less beside the writes`
    throw new KvError('payload_too_large', detail, { limit })
  }

  /** @throws KvError `overloaded` */
  #requireRoom(caller: string | undefined): void {
    const { outcomesBytesMax } = this.#limits
    const share = caller === undefined ? outcomesBytesMax : outcomesBytesMax * SHARE_OF_A_CALLER
    if (this.#bytes < outcomesBytesMax && (this.#ofCaller.get(caller) ?? 0) < share) return
    const detail = `too much is stored for repeats of requests with an Idempotency-Key; it is kept for ${IDEMPOTENCY_MS / 60_000} minutes`
    throw new KvError('overloaded', detail, {})
  }

  #add(caller: string | undefined, bytes: number, expiresAtMs: number): void {
    this.#bytes += bytes
    this.#count(this.#ofCaller, caller, bytes)
    const last = this.#periods.at(-1)
    const period =
      last !== undefined && last.expiresAtMs >= expiresAtMs
        ? last
        : { expiresAtMs: expiresAtMs + PERIOD_MS, bytes: new Map<string | undefined, number>() }
    if (period !== last) this.#periods.push(period)
    this.#count(period.bytes, caller, bytes)
  }

  #count(counts: Map<string | undefined, number>, caller: string | undefined, bytes: number): void {
    const sum = (counts.get(caller) ?? 0) + bytes
    if (sum > 0) counts.set(caller, sum)
    else counts.delete(caller)
  }
}

/** Told from the byte strings in it, so that what is refused is not encoded first. */
function isLongerThan(bytesMax: number, answer: object): boolean {
  let bytes = 0
  const add = (value: unknown): boolean => {
    if (typeof value !== 'object' || value === null) return false
    if (!(value instanceof Uint8Array)) return Object.values(value).some(add)
    bytes += value.length
    return bytes > bytesMax
  }
  return add(answer)
}
