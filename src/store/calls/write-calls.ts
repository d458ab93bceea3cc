import type { LockInfo } from '../../errors/lock-info.js'
import { checkSecondaryLock } from '../../percolator/actions/check-secondary-locks.js'
import { checkTxnStatus } from '../../percolator/actions/check-txn-status.js'
import { cleanup } from '../../percolator/actions/cleanup.js'
import { commitAll } from '../../percolator/actions/commit.js'
import { pessimisticRollback } from '../../percolator/actions/pessimistic-rollback.js'
import { rollback } from '../../percolator/actions/rollback.js'
import { txnHeartBeat } from '../../percolator/actions/txn-heart-beat.js'
import type {
  CheckSecondaryLocksAnswer,
  CheckSecondaryLocksRequest,
  CheckTxnStatusRequest,
  CleanupRequest,
  CommitAnswer,
  CommitRequest,
  PessimisticRollbackRequest,
  PrewriteAnswer,
  PrewriteRequest,
  ResolveLockAnswer,
  ResolveLockRequest,
  RollbackRequest,
  TxnHeartBeatAnswer,
  TxnHeartBeatRequest,
  TxnStatus,
} from '../../percolator/api.js'
import { belowSafePoint } from '../../percolator/errors.js'
import type { Lock } from '../../percolator/lock.js'
import { done, type Mutation, type RowView } from '../../percolator/row.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import { countedRefusal } from './counted-refusal.js'
import { type PrewriteSources, prewriteChange } from './prewrite.js'
import { resolveLock } from './resolve-lock.js'
import type { Change, DepthOf, RowAccess } from './row-access.js'

/** The calls that change rows, for every store. Each reads rows, lets a pure action decide, and writes the mutations. */
export class WriteCalls {
  readonly #rows: RowAccess
  readonly #sources: PrewriteSources

  constructor(sources: PrewriteSources) {
    this.#rows = sources.rows
    this.#sources = sources
  }

  /** @param isExclusive see `Change`. */
  async prewrite(request: PrewriteRequest, isExclusive = false): Promise<PrewriteAnswer> {
    try {
      const change = prewriteChange(this.#sources, request, isExclusive)
      const answer = await this.#rows.update(change)
      if (answer.onePcCommitTs !== undefined) this.#rows.meters.commits.onePhase++
      return answer
    } catch (error) {
      throw countedRefusal(this.#rows.meters, error)
    }
  }

  /** A `prewrite` whose caller holds the latches of its keys. */
  exclusivePrewrite(request: PrewriteRequest): Change<PrewriteAnswer> {
    return prewriteChange(this.#sources, request, true)
  }

  async commit(request: CommitRequest): Promise<CommitAnswer> {
    const { startTs, keys, txnKeys, markDepth, mayAccess, stages } = request
    const depth: DepthOf = (_, lock) => (lock?.startTs === startTs ? 'none' : 'txn')
    await this.#rows.observe(request.commitTs) // Transactions that start later must see this commit.
    let primary: Lock | undefined
    const decide = (rows: readonly RowView[]) => {
      if (startTs < this.#rows.safePoint) throw belowSafePoint(startTs, this.#rows.safePoint)
      primary = rows.find(({ key, lock }) => lock?.startTs === startTs && Buffer.compare(lock.primary, key) === 0)?.lock
      return commitAll(rows, request)
    }
    try {
      const answer = await this.#rows.update({ keys, startTs, depth, decide, txnKeys, markDepth, mayAccess, stages })
      if (primary !== undefined) this.#rows.meters.commits[primary.useAsyncCommit ? 'async' : 'twoPhase']++
      return answer
    } catch (error) {
      throw countedRefusal(this.#rows.meters, error)
    }
  }

  rollback({ keys, startTs, mayAccess, stages }: RollbackRequest): Promise<void> {
    const decide = (rows: readonly RowView[]) => {
      const mutations: Mutation[] = []
      for (const row of rows) {
        const outcome = rollback(row, startTs)
        if (!outcome.ok) return outcome
        mutations.push(...outcome.mutations)
      }
      return done(undefined, mutations)
    }
    return this.#rows.update({ keys, startTs, depth: 'txn', decide, mayAccess, stages }).then(() => {
      this.#rows.meters.rolledBackKeys += keys.length
    })
  }

  pessimisticRollback({ keys, startTs, forUpdateTs, mayAccess, stages }: PessimisticRollbackRequest): Promise<void> {
    const decide = (rows: readonly RowView[]) => {
      const mutations: Mutation[] = []
      for (const row of rows) {
        const outcome = pessimisticRollback(row, startTs, forUpdateTs)
        if (outcome.ok) mutations.push(...outcome.mutations)
      }
      return done(undefined, mutations)
    }
    return this.#rows.update({ keys, startTs, depth: 'none', decide, mayAccess, stages })
  }

  cleanup({ key, startTs, currentTs, mayAccess, stages }: CleanupRequest): Promise<void> {
    const decide = ([row]: readonly RowView[]) => cleanup(row as RowView, startTs, this.#notInFuture(currentTs))
    // A calculated commit_ts must not equal the timestamp of the protected Rollback record, hence `readTs`.
    return this.#rows.update({ keys: [key], startTs, depth: 'txn', readTs: startTs, decide, mayAccess, stages })
  }

  async checkTxnStatus(request: CheckTxnStatusRequest): Promise<TxnStatus> {
    const { primary, lockTs, callerStartTs, currentTs, mayAccess, stages } = request
    for (const ts of [lockTs, callerStartTs, currentTs]) if (ts !== TIMESTAMP_MAX) await this.#rows.observeRead(ts)
    const decide = ([row]: readonly RowView[]) =>
      checkTxnStatus(row as RowView, { ...request, currentTs: this.#notInFuture(currentTs) }, this.#rows.clock())
    return this.#rows.update({ keys: [primary], startTs: lockTs, depth: 'txn', decide, mayAccess, stages })
  }

  checkSecondaryLocks({
    keys,
    startTs,
    mayAccess,
    stages,
  }: CheckSecondaryLocksRequest): Promise<CheckSecondaryLocksAnswer> {
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
    const depth: DepthOf = (_, lock) => (lock?.startTs === startTs && lock.type !== 'pessimistic' ? 'none' : 'txn')
    return this.#rows.update({ keys, startTs, depth, readTs: startTs, decide, mayAccess, stages })
  }

  txnHeartBeat(request: TxnHeartBeatRequest): Promise<TxnHeartBeatAnswer> {
    const { primary, startTs, mayAccess, stages } = request
    const decide = ([row]: readonly RowView[]) => {
      const adviseLockTtl = request.adviseLockTtl + this.#rows.jumpedSince(startTs)
      return txnHeartBeat(row as RowView, { ...request, adviseLockTtl })
    }
    return this.#rows.update({ keys: [primary], startTs, depth: 'none', decide, mayAccess, stages })
  }

  resolveLock(request: ResolveLockRequest): Promise<ResolveLockAnswer> {
    return resolveLock(this.#rows, request)
  }

  /** A client cannot expire a lock early by a timestamp in the future. `TIMESTAMP_MAX` expires a lock of any age. */
  #notInFuture(currentTs: Timestamp): Timestamp {
    return currentTs === TIMESTAMP_MAX ? currentTs : Math.min(currentTs, this.#rows.now())
  }
}
