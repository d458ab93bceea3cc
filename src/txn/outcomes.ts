import { Shares } from '../access/shares.js'
import type { Coordinator } from '../coordinator/coordinator.js'
import { isKvError, KvError } from '../errors/kv-error.js'
import { type LazySignal, requireWanted, signalOf } from '../event-loop/lazy-signal.js'
import { IDEMPOTENCY_MS, type Limits } from '../limits.js'
import type { PrewriteMutation, Version } from '../percolator/api.js'
import { isOutcomeKey, OUTCOMES, outcomeKey } from '../percolator/codec/outcome-key.js'
import type { Store } from '../store/store.js'
import { encodeOutcome, type Idempotency, isOutcomeExpired, type Once, replay } from './idempotency.js'
import { isLongerThan } from './outcome-length.js'

type OutcomeLimits = Pick<Limits, 'outcomeBytesMax' | 'outcomesBytesMax'>

/** Bytes per caller are counted in periods of this length. A period expires as a whole. */
const PERIOD_MS = 60_000
/** How long a repeat waits for the first request, which another server may be running. */
const WAIT_MS_MAX = 10_000

interface Period {
  readonly expiresAtMs: number
  readonly bytes: Map<string, number>
}

export type OutcomeRow = PrewriteMutation & { readonly value: Uint8Array }

/**
 * The stored outcomes of requests with an idempotency key. Each is a reserved row, put by the transaction whose outcome
 * it is. A request reads and writes the row in one transaction, so of several requests under one key one commits. The
 * others conflict with it and find its answer when they look again.
 */
export class Outcomes {
  readonly #store: Store
  readonly #coordinator: Pick<Coordinator, 'begin' | 'snapshot'>
  readonly #limits: OutcomeLimits
  /** Bytes of the stored outcomes. The first collection adds those of earlier runs. */
  #bytes = 0
  readonly #shares = new Shares()
  #periods: Period[] = []

  constructor(store: Store, coordinator: Pick<Coordinator, 'begin' | 'snapshot'>, limits: OutcomeLimits) {
    this.#store = store
    this.#coordinator = coordinator
    this.#limits = limits
  }

  get bytes(): number {
    return this.#bytes
  }

  /** True when a request that has found this version of its row has to run. */
  isFree(found: Pick<Version, 'value'> | undefined): boolean {
    return found === undefined || isOutcomeExpired(found.value, this.#store.time.steadyMs())
  }

  /**
   * @param found the row, as the request has read it.
   * @param signal is checked before an answer is repeated, because a repeat may have waited longer than its token is valid.
   * @returns the answer of an earlier request, if there is one.
   * @throws KvError `idempotency_mismatch`
   */
  replayed<T>(found: Version | undefined, idempotency: Idempotency, signal?: LazySignal): Once<T> | undefined {
    if (found === undefined || this.isFree(found)) return undefined
    requireWanted(signal)
    return { answer: replay<T>(found, idempotency), isReplayed: true }
  }

  /**
   * `replayed` on the row as it is now. Waits for a request whose commit is under way. Works while writes are refused.
   */
  async find<T>(idempotency: Idempotency, signal?: LazySignal): Promise<Once<T> | undefined> {
    const reader = this.#coordinator.snapshot(await this.#store.readTs(), { lockWaitMs: WAIT_MS_MAX })
    const found = await reader.get(outcomeKey(idempotency.key), undefined, signalOf(signal)).catch(refuseRunning)
    return this.replayed(found, idempotency, signal)
  }

  /**
   * Makes the row for the outcome of a request.
   * @param answer see `COMMIT_TS_OF_ROW`.
   * @throws KvError `overloaded` or `payload_too_large` when the outcome has no room. Nothing must have been written yet.
   */
  rowOf(idempotency: Idempotency, answer: object): OutcomeRow {
    this.#requireRoom(idempotency.caller)
    const { outcomeBytesMax: limit } = this.#limits
    const isShort = !isLongerThan(limit, answer)
    const value = isShort ? encodeOutcome(idempotency, this.#store.time.steadyMs(), answer) : undefined
    if (value !== undefined && value.length <= limit) return { op: 'put', key: outcomeKey(idempotency.key), value }
    const detail = `the outcome to be stored under the Idempotency-Key has over ${limit} bytes: read less beside the writes`
    throw new KvError('payload_too_large', detail, { limit })
  }

  /** Call when the row has been committed. */
  stored({ caller, key }: Idempotency, { value }: OutcomeRow): void {
    this.#add(caller, key.length + value.length, this.#store.time.steadyMs() + IDEMPOTENCY_MS)
  }

  async store(idempotency: Idempotency, answer: object): Promise<void> {
    const row = this.rowOf(idempotency, answer)
    const options = { mode: 'optimistic', isolation: 'snapshot', lockWaitMs: WAIT_MS_MAX } as const
    const txn = await this.#coordinator.begin(options)
    await txn.put(row.key, row.value)
    await txn.commit()
    this.stored(idempotency, row)
  }

  async collect(): Promise<void> {
    const nowMs = this.#store.time.steadyMs()
    const before = this.#bytes
    const kept = await this.#store.sweepRows(OUTCOMES, (value) => isOutcomeExpired(value, nowMs))
    this.#bytes += kept - before // Keeps the bytes of outcomes that were stored during the sweep.
    const isOver = ({ expiresAtMs }: Period): boolean => expiresAtMs <= nowMs
    for (const { bytes } of this.#periods.filter(isOver))
      for (const [caller, some] of bytes) this.#shares.add(caller, -some)
    this.#periods = this.#periods.filter((period) => !isOver(period))
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

/**
 * Rethrows the error. A lock on an outcome row belongs to the first request with the key, so it becomes `overloaded`:
 * clients do not know the row.
 */
export function refuseRunning(error: unknown): never {
  if (!isKvError(error, 'key_locked')) throw error
  const { lock, locks = [] } = error.fields
  if (![lock, ...locks].some((one) => one !== undefined && isOutcomeKey(one.key))) throw error
  throw new KvError('overloaded', 'the first request with this Idempotency-Key is still running', {})
}
