import { Backoff } from '../client/backoff.js'
import type { TransactionHome } from '../client/committer.js'
import type { Coordinator } from '../client/coordinator.js'
import { Transaction } from '../client/transaction.js'
import { Undetermined } from '../client/undetermined.js'
import { isKvError } from '../percolator/errors.js'
import { keyText } from '../percolator/key-text.js'
import type { Timestamp } from '../percolator/timestamp.js'
import type { Store, StoredOutcome } from '../store/store.js'
import { type Check, requireChecks } from './check.js'
import { exactlyOnce, type Idempotency, type Once } from './idempotency.js'
import { IN_PROCESS_COMMIT } from './in-process-commit.js'
import { type Op, type OpResult, runOps } from './op.js'

export interface OneShot {
  readonly checks: readonly Check[]
  readonly ops: readonly Op[]
  /** Tries after a write conflict, beyond the first. */
  readonly maxRetries: number
  /** How long to wait for other transactions' locks. */
  readonly lockWaitMs: number
  /** `serializable`: what it read is still so when it commits. */
  readonly isolation?: 'snapshot' | 'serializable' | undefined
  /** Given: the outcome is stored with the commit, and a repeat is answered with it. */
  readonly idempotency?: Idempotency | undefined
}

export interface OneShotAnswer {
  readonly startTs: Timestamp
  /** Absent when nothing was written. */
  readonly commitTs?: Timestamp
  readonly results: readonly OpResult[]
}

/**
 * A whole transaction at once: checks and reads at one start_ts, writes by one-phase commit. Its keys are known
 * beforehand, so it keeps the other writers of this process away from them and rarely loses; when it does (to a client
 * that coordinates itself), it starts again at a new start_ts.
 * @throws KvError `precondition_failed`, `already_exists`, `invalid_argument` (an increment of what is no number),
 *   `write_conflict` after `maxRetries`, `key_locked` after `lockWaitMs`, `idempotency_mismatch`.
 */
export function runOneShot(store: Store, coordinator: Coordinator, request: OneShot): Promise<Once<OneShotAnswer>> {
  const keys = keysOf(request, () => true)
  // Of serializable transactions that scan what others of them write, one at a time can commit.
  const has = (...names: Op['op'][]): boolean => request.ops.some(({ op }) => names.includes(op))
  const isAlone = request.isolation === 'serializable' && has('scan') && has('put', 'delete', 'insert', 'increment')
  return exactlyOnce(store, request.idempotency, async (stored) => {
    const backoff = new Backoff()
    for (let retriesLeft = request.maxRetries; ; retriesLeft--) {
      try {
        return await coordinator.resolver.resolving(request.lockWaitMs, () =>
          store.exclusive(keys, isAlone, (prewrite) => tryOneShot(store, request, prewrite, stored)),
        )
      } catch (error) {
        if (error instanceof Undetermined) throw error.cause
        if (retriesLeft <= 0 || !isKvError(error, 'write_conflict')) throw error
        await backoff.wait()
      }
    }
  })
}

async function tryOneShot(
  store: Store,
  request: OneShot,
  prewrite: Store['prewrite'],
  stored: (answer: OneShotAnswer) => StoredOutcome | undefined,
): Promise<OneShotAnswer> {
  const { checks, ops, isolation = 'snapshot' } = request
  const home: TransactionHome = { ...HOLDING_LATCHES, api: store }
  const startTs = await store.tso(1)
  const txn = new Transaction(home, startTs, { mode: 'optimistic', isolation, lockWaitMs: 0 })
  const found = await txn.prefetch(keysOf(request, ({ op }) => op === 'get' || op === 'insert' || op === 'increment'))
  requireChecks(checks, (key) => found.get(keyText(key)))
  const results = await runOps(txn, ops)
  if (txn.writes === 0) return { startTs, results }
  const commitTs = await txn.commit((mutations) =>
    prewrite({ ...mutations, isFirst: true }, ({ onePcCommitTs }) => {
      // Two phases would take the latches that are held; 1PC only falls back to them where it finds locks of its own.
      if (onePcCommitTs === undefined) throw new Error('a first 1PC prewrite fell back to two phases')
      return stored({ startTs, commitTs: onePcCommitTs, results })
    }),
  )
  return { startTs, commitTs, results }
}

/**
 * Under latches nothing may be resolved: that takes latches itself. Locks are thrown instead, and resolved when the latches
 * are released.
 */
const HOLDING_LATCHES: Omit<TransactionHome, 'api'> = {
  resolver: {
    resolving: (_waitMs, body) => body(),
    resolve: async () => false,
    end: async () => {
      throw new Error('asked to end a transaction under latches')
    },
  },
  commitOptions: { ...IN_PROCESS_COMMIT, triesMax: 1 },
  inBackground: (work) => void work.catch(() => {}),
}

/** Every key that is checked, and those of the ops that `isWanted` holds for; ranges are read from the snapshot. */
function keysOf({ checks, ops }: OneShot, isWanted: (op: Op) => boolean): Uint8Array[] {
  const keys = new Map<string, Uint8Array>()
  for (const { key } of checks) keys.set(keyText(key), key)
  for (const op of ops) if (op.op !== 'scan' && isWanted(op)) keys.set(keyText(op.key), op.key)
  return [...keys.values()]
}
