import { keyText } from '../bytes/key-text.js'
import { Backoff } from '../coordinator/backoff.js'
import { isUncertain } from '../coordinator/uncertain.js'
import { isKvError, KvError } from '../errors/kv-error.js'
import { type LateSignal, requireWanted, signalOf } from '../event-loop/late-signal.js'
import { IDEMPOTENCY_MS } from '../limits.js'
import type { TxnStatus } from '../percolator/api.js'
import { isExpired } from '../percolator/lock.js'
import type { Store } from '../store/store.js'
import type { SharedRecords, SystemName } from '../store/system-records.js'
import type { Timestamp } from '../timestamp.js'
import {
  encodeOutcome,
  encodePending,
  type Idempotency,
  isOutcomeExpired,
  type Once,
  type PendingOutcome,
  pendingOf,
  replay,
  settledAt,
} from './idempotency.js'
import { isLongerThan } from './outcome-length.js'

const RECORDS = 'outcome/' satisfies SystemName

/** A repeat waits this long for the first request, which another server may be running. */
const WAIT_MS_MAX = 10_000
/** A transaction without a lock or a record may only be about to come for this time. */
const LATE_MS_MAX = 3000

/** Must be fulfilled before the transaction commits. @param answer its commit_ts does not count. */
export type ClaimOutcome<T> = (txn: PendingOutcome, answer: T) => Promise<void>

/** Bounds the bytes of outcomes that this process has stored. */
export interface OutcomeRoom {
  /** @throws KvError `overloaded` */
  require(caller: string | undefined): void
  add(caller: string | undefined, bytes: number, expiresAtMs: number): void
}

/** Another request has the key, on this server or another: what it does decides. */
class OutcomeTaken extends Error {}

/**
 * Outcomes in a store where a record cannot be written in one batch with a commit. The record is written before the commit and names
 * the transaction, whose primary then says what became of it. So a server may die at any point: a repeat, on any server,
 * finds the answer of a transaction that has committed, and runs again what has not.
 */
export class SharedOutcomes {
  readonly #store: Store
  readonly #records: SharedRecords
  readonly #bytesMax: number
  readonly #room: OutcomeRoom

  constructor(store: Store, records: SharedRecords, bytesMax: number, room: OutcomeRoom) {
    this.#store = store
    this.#records = records
    this.#bytesMax = bytesMax
    this.#room = room
  }

  /** See `Outcomes.once`. */
  once<T extends object>(
    idempotency: Idempotency,
    stores: 'all' | 'written' | 'nothing',
    signal: LateSignal | undefined,
    run: (claim: ClaimOutcome<T>) => Promise<T>,
  ): Promise<Once<T>> {
    const name: SystemName = `${RECORDS}${keyText(idempotency.key)}`
    return this.#store.system.hold([name], async () => {
      const deadlineMs = performance.now() + WAIT_MS_MAX
      for (;;) {
        const found = await this.#found<T>(name, idempotency, deadlineMs, signal)
        if ('answer' in found) return found
        try {
          return { answer: await this.#run(name, idempotency, stores, found.record, run), isReplayed: false }
        } catch (error) {
          if (!(error instanceof OutcomeTaken)) throw error
        }
      }
    })
  }

  /** @returns the answer of an earlier request; or the record that may be replaced. */
  async #found<T extends object>(
    name: SystemName,
    idempotency: Idempotency,
    deadlineMs: number,
    signal: LateSignal | undefined,
  ): Promise<Once<T> | { readonly record: Uint8Array | undefined }> {
    const backoff = new Backoff(10, 500)
    for (;;) {
      const record = await this.#store.system.get(name)
      if (record === undefined || isOutcomeExpired(record, this.#store.time.steadyMs())) return { record }
      const pending = pendingOf(record)
      const commitTs = pending && (await this.#commitTsOf(pending))
      if (commitTs === 0) return { record } // Of a request that has failed, so that another one may have the key.
      requireWanted(signal)
      const answer = replay<T>(record, idempotency)
      if (pending === undefined) return { answer, isReplayed: true }
      if (commitTs !== undefined) return { answer: { ...answer, commitTs }, isReplayed: true }
      if (performance.now() > deadlineMs)
        throw new KvError('overloaded', 'the first request with this Idempotency-Key is still running', {})
      await backoff.wait(Number.POSITIVE_INFINITY, signalOf(signal))
    }
  }

  /** Before a collection: it may remove the record of a primary, after which nobody could tell that the transaction has committed. */
  async settle(safePoint: Timestamp): Promise<void> {
    for await (const page of this.#records.pages(RECORDS))
      for (const [name, record] of page) {
        const pending = pendingOf(record)
        if (pending === undefined || pending.startTs >= safePoint) continue
        const commitTs = await this.#commitTsOf(pending, true)
        // If somebody else was faster, the transaction is decided for them as well.
        if (commitTs) await this.#records.replace(name, record, settledAt(record, commitTs))
      }
  }

  /** @param isOver it cannot commit any more. @returns 0: it will never commit; undefined: nobody knows yet. */
  async #commitTsOf({ primary, startTs }: PendingOutcome, isOver = false): Promise<Timestamp | undefined> {
    const currentTs = this.#store.now()
    const rollbackIfNotExist = isOver || isExpired({ startTs, ttlMs: LATE_MS_MAX }, currentTs)
    let status: TxnStatus
    try {
      status = await this.#store.checkTxnStatus({
        ...{ primary, lockTs: startTs, callerStartTs: 0, currentTs },
        rollbackIfNotExist,
      })
    } catch (error) {
      if (isKvError(error, 'txn_not_found')) return undefined
      throw error
    }
    return status.status === 'locked' ? undefined : status.commitTs
  }

  async #run<T extends object>(
    name: SystemName,
    idempotency: Idempotency,
    stores: 'all' | 'written' | 'nothing',
    before: Uint8Array | undefined,
    run: (claim: ClaimOutcome<T>) => Promise<T>,
  ): Promise<T> {
    if (stores !== 'nothing') this.#room.require(idempotency.caller)
    const nowMs = this.#store.time.steadyMs()
    let record = before
    const replace = async (value: Uint8Array): Promise<void> => {
      if (value.length > this.#bytesMax) throw this.#tooLong()
      if (!(await this.#records.replace(name, record, value))) throw new OutcomeTaken()
      record = value
    }
    let claimed: PendingOutcome | undefined
    let answer: T
    try {
      answer = await run((txn, pending) => {
        if (isLongerThan(this.#bytesMax, pending)) throw this.#tooLong()
        claimed = txn
        return replace(encodePending(idempotency, nowMs, pending, txn))
      })
    } catch (error) {
      if (claimed !== undefined && !isUncertain(error)) await this.#rollBack(claimed)
      throw error
    }
    const isClaimed = record !== before
    // Saves the repeats the look at the primary. It is no harm if it is lost.
    if (isClaimed) await replace(encodeOutcome(idempotency, nowMs, answer)).catch(() => {})
    else if (stores === 'all') await replace(encodeOutcome(idempotency, nowMs, answer))
    if (record !== undefined && record !== before)
      this.#room.add(idempotency.caller, idempotency.key.length + record.length, nowMs + IDEMPOTENCY_MS)
    return answer
  }

  /** Lets repeats know at once that the transaction of the record has failed. Without a record on its primary it might be late. */
  async #rollBack({ primary, startTs }: PendingOutcome): Promise<void> {
    await this.#store.rollback({ keys: [primary], startTs }).catch(() => {})
  }

  #tooLong(): KvError {
    const limit = this.#bytesMax
    const detail = `the outcome to be stored under the Idempotency-Key has over ${limit} bytes: read less beside the writes`
    return new KvError('payload_too_large', detail, { limit })
  }
}
