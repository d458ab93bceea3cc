import { ANSWER_BYTES_MAX } from '../limits.js'
import { answerTooLarge, pairBytes } from '../percolator/answer-size.js'
import type { Pair, PrewriteAnswer, PrewriteMutation } from '../percolator/api.js'
import { type FailedCheck, invalid, isKvError, KvError, printKey } from '../percolator/errors.js'
import { asBuffer, keyText } from '../percolator/key-text.js'
import { physicalMs, type Timestamp } from '../percolator/timestamp.js'
import type { Store, StoredOutcome } from '../store/store.js'
import { Backoff } from './backoff.js'
import { encodeOutcome, type Idempotency, replay } from './idempotency.js'
import { resolvingLocks } from './lock-resolver.js'
import { type MergedPair, WriteBuffer } from './write-buffer.js'

/** A condition on one key's version at the transaction's start. Every field that is given must hold. */
export interface Check {
  readonly key: Uint8Array
  readonly exists?: boolean | undefined
  readonly value?: Uint8Array | undefined
  /** The version's; 0: the key must be absent. Several: any of them. */
  readonly commitTs?: Timestamp | readonly Timestamp[] | undefined
  /** The version must be none of these. */
  readonly commitTsNot?: readonly Timestamp[] | undefined
}

export type Op =
  | { readonly op: 'get'; readonly key: Uint8Array }
  | { readonly op: 'put'; readonly key: Uint8Array; readonly value: Uint8Array }
  | { readonly op: 'delete'; readonly key: Uint8Array }
  | { readonly op: 'insert'; readonly key: Uint8Array; readonly value: Uint8Array }
  | { readonly op: 'increment'; readonly key: Uint8Array; readonly by: number }
  | {
      readonly op: 'scan'
      readonly start: Uint8Array | undefined
      readonly end: Uint8Array | undefined
      readonly limit: number
      readonly reverse: boolean
      readonly keyOnly: boolean
    }

export interface OneShot {
  readonly checks: readonly Check[]
  readonly ops: readonly Op[]
  /** Tries after a write conflict, beyond the first. */
  readonly maxRetries: number
  /** How long to wait for other transactions' locks. */
  readonly lockWaitMs: number
  /**
   * `serializable`: what it read is still so when it commits. Keys are, because it holds their latches from before
   * `start_ts` on; where it scans a range and writes, it holds everybody else's writes off.
   */
  readonly isolation?: 'snapshot' | 'serializable' | undefined
  /** Given: the outcome is stored with the commit, and a repeat is answered with it. */
  readonly idempotency?: Idempotency | undefined
}

export type OpResult =
  | Record<never, never>
  | { readonly found: boolean; readonly value?: Uint8Array; readonly commitTs?: Timestamp }
  | { readonly pairs: readonly MergedPair[] }
  | { readonly value: Uint8Array }

export interface OneShotAnswer {
  readonly startTs: Timestamp
  /** Absent when nothing was written. */
  readonly commitTs?: Timestamp
  readonly results: readonly OpResult[]
}

/** @param isReplayed the answer of an earlier request with the same idempotency key; this one wrote nothing. */
export interface OneShotOutcome {
  readonly answer: OneShotAnswer
  readonly isReplayed: boolean
}

/** A lock that a dead server leaves would live this long; 1PC leaves none. */
const LOCK_TTL_MS = 3000
const INT64_MAX = 2n ** 63n - 1n
const INT64_MIN = -(2n ** 63n)

/**
 * A whole transaction at once: checks and reads at one start_ts, writes by one-phase commit. Its keys are known
 * beforehand, so it keeps the other writers of this process away from them and rarely loses; when it does (to a client
 * that coordinates itself), it starts again at a new start_ts.
 * @throws KvError `precondition_failed`, `already_exists`, `invalid_argument` (an increment of what is no number),
 *   `write_conflict` after `maxRetries`, `key_locked` after `lockWaitMs`, `idempotency_mismatch`.
 */
export async function runOneShot(store: Store, request: OneShot): Promise<OneShotOutcome> {
  const { idempotency } = request
  const keys = holdsAll(request) ? 'all' : uniqueKeys(request)
  const backoff = new Backoff()
  for (let retriesLeft = request.maxRetries; ; retriesLeft--) {
    try {
      return await resolvingLocks(store, request.lockWaitMs, () =>
        // A repeat that comes while the first still runs waits for it.
        store.exclusive(keys, idempotency?.key, async (prewrite) => {
          const startTs = await store.tso(1)
          const nowMs = physicalMs(startTs)
          if (idempotency !== undefined) {
            const answer = replay<OneShotAnswer>(await store.outcome(idempotency.key), idempotency, nowMs)
            if (answer !== undefined) return { answer, isReplayed: true }
          }
          const stored = (answer: OneShotAnswer): StoredOutcome | undefined =>
            idempotency && { key: idempotency.key, record: encodeOutcome(idempotency, nowMs, answer) }
          const { writes, results } = await evaluate(store, request, startTs)
          const [first] = writes
          if (first === undefined) {
            const answer = { startTs, results }
            const outcome = stored(answer)
            if (outcome !== undefined) await store.putOutcome(outcome)
            return { answer, isReplayed: false }
          }
          const onePc = { startTs, primary: first.key, lockTtl: LOCK_TTL_MS, tryOnePc: true }
          const answerAt = ({ onePcCommitTs }: PrewriteAnswer): OneShotAnswer => {
            if (onePcCommitTs === undefined) throw new Error('a 1PC prewrite without max_commit_ts fell back to 2PC')
            return { startTs, commitTs: onePcCommitTs, results }
          }
          const prewritten = await prewrite({ ...onePc, mutations: writes }, (one) => stored(answerAt(one)))
          return { answer: answerAt(prewritten), isReplayed: false }
        }),
      )
    } catch (error) {
      if (retriesLeft <= 0 || !isKvError(error, 'write_conflict')) throw error
      await backoff.wait(Number.POSITIVE_INFINITY)
    }
  }
}

function holdsAll({ isolation, ops }: OneShot): boolean {
  const has = (...names: Op['op'][]): boolean => ops.some(({ op }) => names.includes(op))
  return isolation === 'serializable' && has('scan') && has('put', 'delete', 'insert', 'increment')
}

/** Every key that the transaction names; ranges are read from the snapshot. */
function uniqueKeys({ checks, ops }: Pick<OneShot, 'checks' | 'ops'>): Uint8Array[] {
  const keys = new Map<string, Uint8Array>()
  for (const { key } of checks) keys.set(keyText(key), key)
  for (const op of ops) if (op.op !== 'scan') keys.set(keyText(op.key), op.key)
  return [...keys.values()]
}

/** Keys whose value or version decides something; a blind put or delete reads nothing. */
function keysToRead({ checks, ops }: OneShot): Uint8Array[] {
  return uniqueKeys({ checks, ops: ops.filter(({ op }) => op === 'get' || op === 'insert' || op === 'increment') })
}

type Snapshot = ReadonlyMap<string, Pair>

async function evaluate(
  store: Store,
  request: OneShot,
  startTs: Timestamp,
): Promise<{ writes: PrewriteMutation[]; results: OpResult[] }> {
  const keys = keysToRead(request)
  const { pairs } = keys.length === 0 ? { pairs: [] } : await store.batchGet({ keys, ts: startTs })
  const snapshot: Snapshot = new Map(pairs.map((pair) => [keyText(pair.key), pair]))
  requireChecks(request.checks, snapshot)
  const buffer = new WriteBuffer()
  const results: OpResult[] = []
  let bytes = 0
  for (const [index, op] of request.ops.entries()) {
    const result = await runOp(store, op, index, snapshot, buffer, startTs)
    results.push(result)
    bytes += bytesOf(result)
    if (bytes > ANSWER_BYTES_MAX) throw answerTooLarge(ANSWER_BYTES_MAX)
  }
  return { writes: buffer.mutations(), results }
}

function bytesOf(result: OpResult): number {
  if ('pairs' in result) return result.pairs.reduce((sum, pair) => sum + pairBytes(pair), 0)
  return 'value' in result ? (result.value?.length ?? 0) : 0
}

function requireChecks(checks: readonly Check[], snapshot: Snapshot): void {
  const failedChecks: FailedCheck[] = []
  for (const [index, check] of checks.entries()) {
    const found = snapshot.get(keyText(check.key))
    if (holds(check, found)) continue
    failedChecks.push({ index, key: check.key, exists: found !== undefined, commitTs: found?.commitTs ?? 0 })
  }
  const [first] = failedChecks
  if (first === undefined) return
  const detail = `check ${first.index} on key ${printKey(first.key)} does not hold`
  const { key, commitTs, index } = first
  throw new KvError('precondition_failed', detail, { key, commitTs, index, failedChecks })
}

function holds(check: Check, found: Pair | undefined): boolean {
  if (check.exists !== undefined && check.exists !== (found !== undefined)) return false
  if (check.value !== undefined && (found?.value === undefined || Buffer.compare(check.value, found.value) !== 0))
    return false
  const commitTs = found?.commitTs ?? 0
  if (check.commitTsNot?.includes(commitTs)) return false
  if (check.commitTs === undefined) return true
  return typeof check.commitTs === 'number' ? check.commitTs === commitTs : check.commitTs.includes(commitTs)
}

async function runOp(
  store: Store,
  op: Op,
  index: number,
  snapshot: Snapshot,
  buffer: WriteBuffer,
  startTs: Timestamp,
): Promise<OpResult> {
  if (op.op === 'scan') {
    const scan = (limit: number): Promise<readonly Pair[]> =>
      store.scan({ ...op, limit, ts: startTs }).then((answer) => answer.pairs)
    return { pairs: await buffer.mergeScan(op, scan) }
  }
  switch (op.op) {
    case 'get': {
      const own = buffer.get(op.key)
      if (own !== undefined) return own.value === undefined ? { found: false } : { found: true, value: own.value }
      const pair = snapshot.get(keyText(op.key))
      return pair?.value === undefined ? { found: false } : { found: true, value: pair.value, commitTs: pair.commitTs }
    }
    case 'put':
      buffer.put(op.key, op.value)
      return {}
    case 'delete':
      buffer.delete(op.key)
      return {}
    case 'insert':
      if (currentValue(op.key, snapshot, buffer) !== undefined)
        throw new KvError('already_exists', `key ${printKey(op.key)} exists already`, { key: op.key })
      buffer.put(op.key, op.value)
      return {}
    case 'increment': {
      const value = Buffer.from(incremented(op, index, currentValue(op.key, snapshot, buffer)))
      buffer.put(op.key, value)
      return { value }
    }
  }
}

function currentValue(key: Uint8Array, snapshot: Snapshot, buffer: WriteBuffer): Uint8Array | undefined {
  const own = buffer.get(key)
  return own === undefined ? snapshot.get(keyText(key))?.value : own.value
}

/** Decimal text in the range of a signed 64-bit integer, as counters elsewhere have it. */
function incremented(op: { key: Uint8Array; by: number }, index: number, current: Uint8Array | undefined): string {
  const text = current === undefined ? '0' : asBuffer(current).toString('latin1')
  const value = /^-?\d{1,19}$/.test(text) ? BigInt(text) + BigInt(op.by) : undefined
  if (value === undefined)
    throw invalid(`ops[${index}].key`, `the value of key ${printKey(op.key)} is no decimal integer of 64 bits`)
  if (value > INT64_MAX || value < INT64_MIN)
    throw invalid(`ops[${index}].by`, `incrementing key ${printKey(op.key)} by ${op.by} overflows 64 bits`)
  return value.toString()
}
