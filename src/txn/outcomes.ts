import { Shares } from '../access/shares.js'
import { keyText } from '../bytes/key-text.js'
import { KvError } from '../errors/kv-error.js'
import { type LateSignal, requireWanted } from '../event-loop/late-signal.js'
import { IDEMPOTENCY_MS, type Limits } from '../limits.js'
import type { Store } from '../store/store.js'
import type { SystemName, SystemWrite } from '../store/system-records.js'
import type { Timestamp } from '../timestamp.js'
import { encodeOutcome, type Idempotency, isOutcomeExpired, type Once, replay } from './idempotency.js'
import { isLongerThan } from './outcome-length.js'
import { type ClaimOutcome, type OutcomeRoom, SharedOutcomes } from './shared-outcomes.js'

const RECORDS = 'outcome/' satisfies SystemName

type OutcomeLimits = Pick<Limits, 'outcomeBytesMax' | 'outcomesBytesMax'>

/** The bytes per caller are counted in periods of this length, and a period expires as a whole. */
const PERIOD_MS = 60_000

/** `written`: only outcomes of requests that write. A repeated read runs again, so its answer may have any length. */
export type Stores = 'all' | 'written' | 'nothing'

/** Outcomes that were stored within one period. */
interface Period {
  /** Expiry of the last of them. */
  readonly expiresAtMs: number
  /** By caller. */
  readonly bytes: Map<string, number>
}

/** The stored outcomes of requests with an idempotency key. Each request takes effect once. */
export class Outcomes {
  readonly #store: Store
  readonly #limits: OutcomeLimits
  /** Total of the stored outcomes. The first collection adds those of earlier runs. */
  #bytes = 0
  readonly #shares = new Shares()
  #periods: Period[] = []
  /** undefined: this process has the store to itself. */
  readonly #shared: SharedOutcomes | undefined

  constructor(store: Store, limits: OutcomeLimits) {
    this.#store = store
    this.#limits = limits
    const { shared } = store
    const room: OutcomeRoom = {
      require: (caller) => this.#requireRoom(caller),
      add: (caller, bytes, expiresAtMs) => this.#add(caller, bytes, expiresAtMs),
    }
    this.#shared = shared && new SharedOutcomes(store, shared.records, limits.outcomeBytesMax, room)
  }

  /** Bytes of all stored outcomes. */
  get bytes(): number {
    return this.#bytes
  }

  /**
   * Runs a request, or returns the stored answer of an earlier one. A repeat waits while the first request is running.
   * @param idempotency undefined for a request without a key, which just runs.
   * @param stores a repeat of a request whose outcome is not stored runs again.
   * @param signal is asked before an answer is repeated: a repeat may have waited for longer than its token was known. `run` asks itself.
   * @param run gets a function that makes the outcome's record; `run` must write it in the same atomic batch as the
   *   commit. undefined when there is nothing to store. In a store without such batches it gets `claim` instead.
   * @throws KvError `idempotency_mismatch`; `overloaded` or `payload_too_large` when the outcome has no room, before
   *   anything is written; the errors of `run`. The outcome of a failed request is not stored.
   */
  async once<T extends object>(
    idempotency: Idempotency | undefined,
    stores: Stores,
    signal: LateSignal | undefined,
    run: (
      beside: ((answer: T) => readonly SystemWrite[]) | undefined,
      claim: ClaimOutcome<T> | undefined,
    ) => Promise<T>,
  ): Promise<Once<T>> {
    if (idempotency === undefined) return { answer: await run(undefined, undefined), isReplayed: false }
    const { system } = this.#store
    if (this.#shared !== undefined)
      return this.#shared.once(idempotency, stores, signal, (claim) => run(undefined, claim))
    const name: SystemName = `${RECORDS}${keyText(idempotency.key)}`
    return system.hold([name], async () => {
      const nowMs = this.#store.time.steadyMs()
      const isLive = (found: Uint8Array): boolean => !isOutcomeExpired(found, nowMs)
      const record = await system.get(name, isLive)
      if (record !== undefined && isLive(record)) {
        requireWanted(signal)
        return { answer: replay<T>(record, idempotency), isReplayed: true }
      }
      if (stores !== 'nothing') this.#requireRoom(idempotency.caller)
      let value: Uint8Array | undefined
      const answer = await run((stored) => {
        value = this.#recordOf(idempotency, nowMs, stored)
        return [{ name, value }]
      }, undefined)
      if (value === undefined && stores === 'all') {
        value = this.#recordOf(idempotency, nowMs, answer)
        await system.write([{ name, value }])
      }
      if (value !== undefined)
        this.#add(idempotency.caller, idempotency.key.length + value.length, nowMs + IDEMPOTENCY_MS)
      return { answer, isReplayed: false }
    })
  }

  /** To be called before a collection removes anything, when no lock below `safePoint` is left. */
  async settle(safePoint: Timestamp): Promise<void> {
    await this.#shared?.settle(safePoint)
  }

  /** Removes expired outcomes, and counts the others. */
  async collect(): Promise<void> {
    const nowMs = this.#store.time.steadyMs()
    const before = this.#bytes
    const kept = await this.#store.system.sweep(RECORDS, (record) => isOutcomeExpired(record, nowMs))
    this.#bytes += kept - before // Keeps the bytes of outcomes that were stored during the sweep.
    const isOver = ({ expiresAtMs }: Period): boolean => expiresAtMs <= nowMs
    for (const { bytes } of this.#periods.filter(isOver))
      for (const [caller, some] of bytes) this.#shares.add(caller, -some)
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
    if (this.#bytes < outcomesBytesMax && this.#shares.hasRoom(caller, outcomesBytesMax)) return
    const detail = `too much is stored for repeats of requests with an Idempotency-Key; it is kept for ${IDEMPOTENCY_MS / 60_000} minutes`
    throw new KvError('overloaded', detail, {})
  }

  #add(caller: string | undefined, bytes: number, expiresAtMs: number): void {
    this.#bytes += bytes
    if (caller === undefined) return
    this.#shares.add(caller, bytes)
    const last = this.#periods.at(-1)
    const period =
      last !== undefined && last.expiresAtMs >= expiresAtMs
        ? last
        : { expiresAtMs: expiresAtMs + PERIOD_MS, bytes: new Map<string, number>() }
    if (period !== last) this.#periods.push(period)
    period.bytes.set(caller, (period.bytes.get(caller) ?? 0) + bytes)
  }
}
