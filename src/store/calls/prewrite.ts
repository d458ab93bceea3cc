import { invalid, isKvError, KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import { prewrite as decidePrewrite, prewriteDepth } from '../../percolator/actions/prewrite.js'
import type { PrewriteAnswer, PrewriteRequest, ValidateReadsRequest } from '../../percolator/api.js'
import { belowSafePoint, keyLocked, withEntries, writeConflict } from '../../percolator/errors.js'
import type { RowView } from '../../percolator/row.js'
import type { Timestamp } from '../../timestamp.js'
import type { DecidedEffects } from '../observed.js'
import type { Change, Decided, Decision, Preparation, RowAccess } from './row-access.js'

const NO_MUTATION = { op: 'put', key: new Uint8Array() } as const

export interface PrewriteSources {
  readonly rows: RowAccess
  /** The store takes the commit_ts of one-phase commits from elsewhere: see `Change.decideAtOnce`. */
  readonly takesCommitTs?: boolean | undefined
  readonly validateReads: (request: ValidateReadsRequest) => Promise<void>
  /** Absent: the store takes no commit effects but leases that are checked at the commit. */
  readonly commitEffectsOf?: ((request: PrewriteRequest) => PrewriteEffects | undefined) | undefined
}

export interface PrewriteEffects extends Preparation {
  readonly latches: readonly string[]
  /**
   * Not called for the repeat of a committed transaction, whose observers may be gone.
   * @throws KvError `invalid_argument` (`riders`), `not_found`
   */
  requireValid(): void
  /** Counts a run whose writes or reads met a conflict, once per observer that it would have acknowledged. */
  countConflict(error: unknown): void
  /**
   * @param hasWrites the transaction writes rows, which show a repeat.
   * @throws KvError `write_conflict` (`acknowledged`, `superseded`), `precondition_failed` (a lease), `ts_below_safe_point`;
   *   `invalid_argument` for a commit ahead of the clock, because later claims and notifications would be below it.
   */
  decide(commitTs: Timestamp, hasWrites: boolean): EffectsDecision
}

export type EffectsDecision =
  /** A transaction of commit effects alone that has committed before. */
  | { readonly kind: 'repeat'; readonly commitTs: Timestamp }
  | { readonly kind: 'decided'; readonly decidedEffects: DecidedEffects }

export function prewriteChange(
  sources: PrewriteSources,
  request: PrewriteRequest,
  isExclusive: boolean,
): Change<PrewriteAnswer> {
  const { startTs, mutations, forUpdateTs } = request
  const commitEffects = request.commitEffects?.leasesCheckedAtCommit ? undefined : sources.commitEffectsOf?.(request)
  const isAtOnce = sources.takesCommitTs && request.tryOnePc
  const locking = isAtOnce ? { ...request, tryOnePc: false } : request
  return {
    latches: commitEffects?.latches,
    preparation: commitEffects,
    keys: mutations.map(({ key }) => key),
    startTs,
    depth: (index) => prewriteDepth(mutations[index] ?? NO_MUTATION),
    // A pessimistic prewrite is checked against its for_update_ts, which a faulty client may send below its start_ts.
    depthTs: Math.min(startTs, forUpdateTs || startTs),
    // Records that an earlier decision of this change has written are the transaction's own.
    decide(found, isRepeat = false) {
      const decision = decide(sources, isRepeat ? { ...locking, isFirst: false } : locking, commitEffects, found)
      if (!isAtOnce || !decision.ok || decision.value.minCommitTs === undefined) return decision
      return { ...decision, value: { onePcCommitTs: decision.value.minCommitTs } } // An earlier try has committed.
    },
    decideAtOnce: isAtOnce
      ? (found, isRepeat, commitTs) =>
          decidedAt(commitTs, sources, isRepeat ? { ...request, isFirst: false } : request, found)
      : undefined,
    readTs: countsAsRead(request) ? startTs : undefined,
    mayAccess: request.mayAccess,
    stages: request.stages,
    markDepth: request.markDepth,
    isExclusive,
  }
}

/** @returns undefined when the transaction cannot commit at `commitTs` at once. */
function decidedAt(
  commitTs: Timestamp,
  sources: PrewriteSources,
  request: PrewriteRequest,
  found: readonly RowView[],
): Decided<PrewriteAnswer> | undefined {
  const decision = decide(sources, request, undefined, found, commitTs - 1)
  return decision.ok && decision.value.onePcCommitTs === commitTs ? decision : undefined
}

/**
 * A calculated commit timestamp is above start_ts, so timestamps handed out later must be above it too. A check that a
 * key is absent is a read: later commits to the key must be above this start_ts.
 */
function countsAsRead({ tryOnePc, useAsyncCommit, mutations }: PrewriteRequest): boolean {
  return (
    tryOnePc === true ||
    useAsyncCommit === true ||
    mutations.some(({ op }) => op === 'insert' || op === 'check_not_exists')
  )
}

function decide(
  { rows, validateReads }: PrewriteSources,
  request: PrewriteRequest,
  commitEffects: PrewriteEffects | undefined,
  found: readonly RowView[],
  maxTsAtLeast: Timestamp = 0,
): Decision<PrewriteAnswer> {
  const { startTs, reads } = request
  if (startTs < rows.safePoint) throw belowSafePoint(startTs, rows.safePoint)
  const maxTs = Math.max(rows.maxTs, rows.removalTs, maxTsAtLeast || (request.linearizable ? rows.lastTs : 0))
  const context = { maxTs, shortValueBytesMax: rows.shortValueBytesMax, passedTs: rows.passedTs, clockTs: rows.clock() }
  const jumpedMs = rows.jumpedSince(startTs)
  const asked = jumpedMs === 0 ? request : { ...request, lockTtl: request.lockTtl + jumpedMs }
  const decided = decidePrewrite(found, asked, context)
  const hasWrites = request.mutations.some(({ op }) => op !== 'check_not_exists')
  // The mutations of an earlier commit are there already, and its commit effects with them.
  const isRepeat =
    decided.ok && decided.value.onePcCommitTs !== undefined && hasWrites && decided.mutations.length === 0
  if (!isRepeat) commitEffects?.requireValid()
  if (!decided.ok) {
    commitEffects?.countConflict(decided.error)
    return decided
  }
  const { value, mutations } = decided
  const { onePcCommitTs: commitTs } = value
  let decidedEffects: DecidedEffects | undefined
  if (commitEffects !== undefined && !isRepeat) {
    if (commitTs === undefined)
      throw invalid('riders', 'riders need one-phase commit, and an earlier request of the transaction has left locks')
    const outcome = commitEffects.decide(commitTs, hasWrites)
    if (outcome.kind === 'repeat') return { ok: true, value: { onePcCommitTs: outcome.commitTs }, mutations: [] }
    decidedEffects = outcome.decidedEffects
  }
  // Every timestamp handed out from now on must be above a calculated one.
  const observed = rows.observe(commitTs ?? value.minCommitTs ?? 0)
  observed?.catch(() => {}) // It is awaited after the write, which may fail first when the disk fails.
  const claimed = commitTs === undefined || isRepeat ? undefined : stampedKeys(request, commitTs)
  if (claimed !== undefined && commitTs !== undefined) {
    // Until it is observed, another commit may calculate the same commit_ts.
    const isUnique = observed === undefined && rows.lastTs >= commitTs
    if (!isUnique || !rows.claim(claimed, startTs)) return stampTaken(claimed, request, commitTs)
  }
  return {
    ok: true,
    value,
    mutations,
    claimed,
    onePc: request,
    decidedEffects,
    // Only for a request that commits now.
    validate:
      reads !== undefined && commitTs !== undefined && (mutations.length > 0 || decidedEffects !== undefined)
        ? () =>
            validateReads({ ...reads, startTs, commitTs }).catch((error) => {
              commitEffects?.countConflict(error)
              listed(error)
            })
        : undefined,
    observed,
  }
}

/** @returns undefined without versionstamped puts. */
function stampedKeys({ mutations }: PrewriteRequest, commitTs: Timestamp): readonly Uint8Array[] | undefined {
  if (!mutations.some(({ keyAt }) => keyAt !== undefined)) return undefined
  return mutations.flatMap(({ keyAt }) => (keyAt === undefined ? [] : [keyAt(commitTs)]))
}

/** The next try commits at a later timestamp, which makes other keys. */
function stampTaken(
  [key = new Uint8Array()]: readonly Uint8Array[],
  request: PrewriteRequest,
  commitTs: Timestamp,
): Decision<PrewriteAnswer> {
  const detail = `the key ${printKey(key)} cannot be made of the commit_ts ${commitTs}: another one can`
  const error = writeConflict(key, request, { startTs: commitTs, commitTs }, 'optimistic', detail)
  return { ok: false, error: withEntries([error]) }
}

/** Every failed prewrite lists its failures in `errors`, including those of the validation of reads. */
function listed(error: unknown): never {
  if (!(error instanceof KvError)) throw error
  const locks = isKvError(error, 'key_locked') ? error.fields.locks : undefined
  throw withEntries(locks?.map(keyLocked) ?? [error])
}
