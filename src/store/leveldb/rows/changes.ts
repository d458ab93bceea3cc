import { keyText } from '../../../bytes/key-text.js'
import { isKvError, KvError } from '../../../errors/kv-error.js'
import type { LockInfo } from '../../../errors/lock-info.js'
import { inSlices } from '../../../event-loop/slices.js'
import { SHORT_VALUE_BYTES_MAX } from '../../../limits.js'
import { checkSecondaryLock } from '../../../percolator/actions/check-secondary-locks.js'
import { checkTxnStatus } from '../../../percolator/actions/check-txn-status.js'
import { cleanup } from '../../../percolator/actions/cleanup.js'
import { commitAll } from '../../../percolator/actions/commit.js'
import { prewrite, prewriteDepth } from '../../../percolator/actions/prewrite.js'
import { resolveLock } from '../../../percolator/actions/resolve-lock.js'
import { rollback } from '../../../percolator/actions/rollback.js'
import { txnHeartBeat } from '../../../percolator/actions/txn-heart-beat.js'
import type {
  CheckSecondaryLocksAnswer,
  CheckSecondaryLocksRequest,
  CheckTxnStatusRequest,
  CleanupRequest,
  CommitAnswer,
  CommitRequest,
  DecidedTxn,
  PrewriteAnswer,
  PrewriteRequest,
  ResolveLockAnswer,
  ResolveLockRequest,
  RollbackRequest,
  TxnHeartBeatAnswer,
  TxnHeartBeatRequest,
  TxnStatus,
} from '../../../percolator/api.js'
import { belowSafePoint, keyLocked, withEntries } from '../../../percolator/errors.js'
import type { Reaches } from '../../../percolator/reach.js'
import { done, type Mutation, type RowView } from '../../../percolator/row.js'
import { TIMESTAMP_MAX } from '../../../timestamp.js'
import type { Claim, Store, StoredOutcome } from '../../store.js'
import type { LockEntry } from '../memory/lock-table.js'
import { reachGuard } from './reach-guard.js'
import type { ReadValidation } from './read-validation.js'
import { type DepthOf, isInFlight, KEYS_AT_A_TIME, NONE, type RowStore, TXN } from './row-store.js'
import { outcomeOp } from './stored-outcomes.js'

/** Not a key: keys have no character above U+00FF. */
const ALONE_LATCH = '\u0100'
const NO_MUTATION = { op: 'put', key: new Uint8Array() } as const

/** The calls that change rows: each hands its rows to one pure action, under latches. */
export class Changes {
  readonly #rows: RowStore
  readonly #validation: ReadValidation

  constructor(rows: RowStore, validation: ReadValidation) {
    this.#rows = rows
    this.#validation = validation
  }

  prewrite(
    request: PrewriteRequest,
    outcomeOf?: (answer: PrewriteAnswer) => StoredOutcome | undefined,
  ): Promise<PrewriteAnswer> {
    const keys = request.mutations.map((mutation) => keyText(mutation.key))
    return this.#rows.guard(() => this.#rows.latches.hold(keys, () => this.#prewriteLatched(request, outcomeOf)))
  }

  exclusive<T>({ written, read, isAlone }: Claim, body: (prewrite: Store['prewrite']) => Promise<T>): Promise<T> {
    const held = isAlone ? [...written, ALONE_LATCH] : written
    return this.#rows.guard(() => this.#rows.latches.hold(held, () => body(this.#prewriteHeld), read))
  }

  readonly #prewriteHeld: Store['prewrite'] = (request, outcomeOf) => this.#prewriteLatched(request, outcomeOf)

  async #prewriteLatched(
    request: PrewriteRequest,
    outcomeOf: ((answer: PrewriteAnswer) => StoredOutcome | undefined) | undefined,
  ): Promise<PrewriteAnswer> {
    const { startTs, mutations, reads } = request
    const keys = mutations.map(({ key }) => key)
    // A calculated commit timestamp goes above the start, so timestamps handed out later must too. And reading that a
    // key is absent is a read: nobody may commit it below this start afterwards.
    if (
      request.tryOnePc ||
      request.useAsyncCommit ||
      mutations.some(({ op }) => op === 'insert' || op === 'check_not_exists')
    )
      await this.#rows.observe(startTs)
    // A pessimistic prewrite is checked against its for_update_ts, which a confused client puts below its start.
    const since = Math.min(startTs, request.forUpdateTs || startTs)
    const { reaches } = request
    const requireReach = reaches && (await reachGuard(this.#rows, keys, startTs, reaches))
    const rows = await this.#rows.readRows(keys, since, (index) => prewriteDepth(mutations[index] ?? NO_MUTATION))
    // One turn of the event loop from here to the published locks: see `get`.
    if (startTs < this.#rows.safePoint) throw belowSafePoint(startTs, this.#rows.safePoint)
    const maxTs = request.linearizable ? Math.max(this.#rows.maxTs, this.#rows.oracle.last) : this.#rows.maxTs
    const context = { maxTs, shortValueBytesMax: SHORT_VALUE_BYTES_MAX }
    const jumpedMs = this.#rows.jumpedSince(startTs)
    const asked = jumpedMs === 0 ? request : { ...request, lockTtl: request.lockTtl + jumpedMs }
    const outcome = prewrite(rows, asked, context)
    if (outcome.ok) requireReach?.(outcome.mutations, rows)
    // No timestamp handed out from now on equals a calculated one, or is below it.
    const calculated = outcome.ok ? (outcome.value.onePcCommitTs ?? outcome.value.minCommitTs ?? 0) : 0
    const observed = this.#rows.oracle.observe(calculated)
    observed?.catch(() => {}) // Awaited below, unless the write fails first: with the same disk, as likely as not.
    if (!outcome.ok) throw outcome.error
    const stored = outcomeOf?.(outcome.value)
    const { onePcCommitTs: commitTs } = outcome.value
    // Where it is 1PC after all, and not the repeat of one: its locks stand in memory while its reads are validated.
    const validate =
      reads !== undefined && commitTs !== undefined && outcome.mutations.length > 0
        ? () => this.#validation.validate({ ...reads, startTs, commitTs }).catch(listed)
        : undefined
    await this.#rows.apply(outcome.mutations, { onePc: request, beside: stored && [outcomeOp(stored)], validate })
    this.#rows.waits.acquired(startTs)
    await observed
    return outcome.value
  }

  async commit(request: CommitRequest): Promise<CommitAnswer> {
    const { startTs, keys, reaches } = request
    const depth: DepthOf = (_, lock) => (lock?.startTs === startTs ? 'none' : 'txn')
    await this.#rows.guard(() => this.#rows.oracle.observe(request.commitTs)) // Whoever starts afterwards must see this commit.
    const decide = (rows: readonly RowView[]) => {
      if (startTs < this.#rows.safePoint) throw belowSafePoint(startTs, this.#rows.safePoint)
      return commitAll(rows, request)
    }
    return this.#rows.update(keys, startTs, depth, decide, reaches)
  }

  rollback({ keys, startTs, reaches }: RollbackRequest): Promise<void> {
    const decide = (rows: readonly RowView[]) => {
      const mutations: Mutation[] = []
      for (const row of rows) {
        const outcome = rollback(row, startTs)
        if (!outcome.ok) return outcome
        mutations.push(...outcome.mutations)
      }
      return done(undefined, mutations)
    }
    return this.#rows.update(keys, startTs, TXN, decide, reaches)
  }

  async cleanup({ key, startTs, currentTs, reaches }: CleanupRequest): Promise<void> {
    await this.#rows.observe(startTs) // No calculated commit may land on the protected Rollback record.
    const decide = ([row]: readonly RowView[]) => cleanup(row as RowView, startTs, this.#rows.notInFuture(currentTs))
    return this.#rows.update([key], startTs, TXN, decide, reaches)
  }

  async checkTxnStatus(request: CheckTxnStatusRequest): Promise<TxnStatus> {
    const { primary, lockTs, callerStartTs, currentTs, reaches } = request
    for (const ts of [lockTs, callerStartTs, currentTs]) if (ts !== TIMESTAMP_MAX) await this.#rows.observe(ts)
    const decide = ([row]: readonly RowView[]) =>
      checkTxnStatus(row as RowView, { ...request, currentTs: this.#rows.notInFuture(currentTs) })
    return this.#rows.update([primary], lockTs, TXN, decide, reaches)
  }

  async checkSecondaryLocks(request: CheckSecondaryLocksRequest): Promise<CheckSecondaryLocksAnswer> {
    const { keys, startTs, reaches } = request
    await this.#rows.observe(startTs)
    const decide = (rows: readonly RowView[]) => {
      const locks: LockInfo[] = []
      const mutations: Mutation[] = []
      for (const row of rows) {
        const outcome = checkSecondaryLock(row, startTs)
        if (!outcome.ok) return outcome
        mutations.push(...outcome.mutations)
        if (outcome.value.kind === 'locked') locks.push(outcome.value.lock)
        else
          return done(
            { locks: [], commitTs: outcome.value.kind === 'committed' ? outcome.value.commitTs : 0 },
            mutations,
          )
      }
      return done({ locks, commitTs: 0 }, mutations)
    }
    return this.#rows.update(keys, startTs, TXN, decide, reaches)
  }

  txnHeartBeat(request: TxnHeartBeatRequest): Promise<TxnHeartBeatAnswer> {
    const { primary, startTs, reaches } = request
    const decide = ([row]: readonly RowView[]) => {
      const adviseLockTtl = request.adviseLockTtl + this.#rows.jumpedSince(startTs)
      return txnHeartBeat(row as RowView, { ...request, adviseLockTtl })
    }
    return this.#rows.update([primary], startTs, NONE, decide, reaches)
  }

  async resolveLock({ txns, keys, isDecided = false, reaches }: ResolveLockRequest): Promise<ResolveLockAnswer> {
    if (keys !== undefined) {
      const [txn] = txns
      if (txn === undefined) return { resolved: 0 }
      return { resolved: await this.#resolve(keys, txn, true, isDecided, reaches) }
    }
    let resolved = 0
    for (const [txn, locked] of await this.#rows.guard(() => this.#locksOf(txns)))
      for (let from = 0; from < locked.length; from += KEYS_AT_A_TIME)
        resolved += await this.#resolve(locked.slice(from, from + KEYS_AT_A_TIME), txn, false, isDecided, reaches)
    return { resolved }
  }

  /** The keys that each of the transactions locks, by one walk over the table. */
  async #locksOf(txns: readonly DecidedTxn[]): Promise<Map<DecidedTxn, Uint8Array[]>> {
    this.#rows.requireAvailable()
    const asked = new Map(txns.map((txn) => [txn.startTs, txn]))
    const found = new Map<DecidedTxn, Uint8Array[]>()
    const visit = ({ key, lock }: LockEntry): boolean => {
      const txn = isInFlight(lock) ? undefined : asked.get(lock.startTs)
      const keys = txn && found.get(txn)
      if (keys !== undefined) keys.push(key)
      else if (txn !== undefined) found.set(txn, [key])
      return true
    }
    await inSlices(this.#rows.locks.walk({}, visit))
    return found
  }

  async #resolve(
    keys: readonly Uint8Array[],
    { startTs, commitTs }: DecidedTxn,
    areNamed: boolean,
    isDecided: boolean,
    reaches: Reaches | undefined,
  ): Promise<number> {
    await this.#rows.guard(() => this.#rows.oracle.observe(commitTs))
    const decide = (rows: readonly RowView[]) => {
      let resolved = 0
      const mutations: Mutation[] = []
      for (const row of rows) {
        const outcome = resolveLock(row, startTs, commitTs, areNamed, isDecided)
        if (!outcome.ok) return outcome
        mutations.push(...outcome.mutations)
        if (outcome.value.released) resolved++
      }
      return done(resolved, mutations)
    }
    return this.#rows.update(keys, startTs, TXN, decide, reaches)
  }
}

/** A failed prewrite lists what failed, also where that was a read. */
function listed(error: unknown): never {
  if (!(error instanceof KvError)) throw error
  const locks = isKvError(error, 'key_locked') ? error.fields.locks : undefined
  throw withEntries(locks?.map(keyLocked) ?? [error])
}
