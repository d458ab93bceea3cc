import { keyText } from '../bytes/key-text.js'
import type { Attached } from '../coordinator/attaches.js'
import { type CommitPlan, Committer, type TransactionContext } from '../coordinator/committer.js'
import { type EffectsAsRows, needsRows } from '../coordinator/effect-rows.js'
import { Undetermined } from '../coordinator/undetermined.js'
import { invalid } from '../errors/kv-error.js'
import type { PessimisticAction, PrewriteAnswer, PrewriteRequest } from '../percolator/api.js'
import type { CommitEffects } from '../percolator/commit-effects.js'
import { sameKey } from '../percolator/row.js'
import type { Timestamp } from '../timestamp.js'

/**
 * The prewrite of a client that coordinates its own transaction. If it has other commit effects than leases, and the store
 * needs two phases for them, this process commits the transaction, within this request or not at all. Rows of
 * keys that are attached to leases go with it.
 * @throws as `Transaction.commit`.
 */
export function prewriteWithEffects(context: TransactionContext, request: PrewriteRequest): Promise<PrewriteAnswer> {
  const { commitEffects } = request
  return commitEffects === undefined ? context.api.prewrite(request) : withEffects(context, request, commitEffects)
}

async function withEffects(
  context: TransactionContext,
  request: PrewriteRequest,
  commitEffects: CommitEffects,
): Promise<PrewriteAnswer> {
  const { effectsAsRows, api, attaches, commitOptions } = context
  const asRows = effectsAsRows !== undefined && needsRows(commitEffects)
  const { leases = [] } = commitEffects
  const isTaken = commitOptions.onePhase || asRows // Otherwise the store refuses the request.
  const attached = leases.length > 0 && isTaken ? await attaches?.(request.mutations, leases) : undefined
  const whole = attached === undefined ? request : withRows(request, attached)
  try {
    return await (asRows ? commitWithRows(context, effectsAsRows, whole, commitEffects) : api.prewrite(whole))
  } finally {
    attached?.done()
  }
}

function withRows(request: PrewriteRequest, { rows }: Attached): PrewriteRequest {
  const { mutations, pessimisticActions } = request
  const actions = pessimisticActions && [...pessimisticActions, ...rows.map(() => 'skip' as const)]
  return { ...request, mutations: [...mutations, ...rows], pessimisticActions: actions }
}

async function commitWithRows(
  context: TransactionContext,
  effectsAsRows: EffectsAsRows,
  request: PrewriteRequest,
  commitEffects: CommitEffects,
): Promise<PrewriteAnswer> {
  const { startTs, mutations, forUpdateTs, forUpdateTsMax, pessimisticActions, minCommitTs, reads, stages } = request
  const places = new Map(mutations.map(({ key }, i) => [keyText(key), i]))
  const placeOf = (key: Uint8Array): number => places.get(keyText(key)) ?? -1
  const actionOf = (key: Uint8Array): PessimisticAction | undefined => pessimisticActions?.[placeOf(key)]
  await requireDecidable(context, request, commitEffects, actionOf)
  const asked = { commitEffects, startTs, mutations, resolver: context.resolver, lockWaitMs: 0 }
  const effectRows = await effectsAsRows({ ...asked, mayRepeat: true })
  if (effectRows.committedAt !== undefined) return { onePcCommitTs: effectRows.committedAt }
  const all = [...mutations, ...effectRows.mutations]
  const isNamed = all.some(({ key }) => sameKey(key, request.primary))
  const primary = (isNamed ? undefined : all[0]?.key) ?? request.primary
  const plan: CommitPlan = {
    ...{ startTs, primary, reads, stages, startedAt: performance.now() },
    mutations: all,
    commitEffects: commitEffects.leases?.length ? { ...commitEffects, acks: [], notify: [], positions: [] } : undefined,
    forUpdateTs: forUpdateTs || undefined,
    grantedAt: forUpdateTs ? (key) => forUpdateTsMax?.[placeOf(key)] ?? forUpdateTs : undefined,
    actionOf,
    minCommitTs,
    lockWaitMs: 0,
    markDepth: effectRows.markDepth,
  }
  const committed = (commitTs: Timestamp): PrewriteAnswer => {
    context.inBackground(effectRows.committed())
    return { onePcCommitTs: commitTs }
  }
  try {
    return committed(await new Committer(context, plan).run())
  } catch (error) {
    // A repeat whose first copy has committed finds that some of its rows are gone.
    const commitTs = await committedAt(context, primary, startTs).catch(() => undefined)
    if (commitTs !== undefined) return committed(commitTs)
    throw error instanceof Undetermined ? error.cause : effectRows.refusal(error)
  }
}

/**
 * The acknowledgement is decided before the locks are placed. A write to an observed key in between has to be a
 * conflict, or the transaction's own write would hide it from the observer.
 */
async function requireDecidable(
  { api }: TransactionContext,
  { minCommitTs = 0, skipConstraintCheck }: PrewriteRequest,
  { acks = [] }: CommitEffects,
  actionOf: (key: Uint8Array) => PessimisticAction | undefined,
): Promise<void> {
  if (skipConstraintCheck) throw invalid('skip_constraint_check', 'skip_constraint_check does not go with riders here')
  if (acks.some(({ key }) => actionOf(key) === 'skip'))
    throw invalid('pessimistic_actions', 'a key that is acknowledged cannot be skipped')
  if (minCommitTs > 0 && minCommitTs > (await api.now()))
    throw invalid('riders', `the transaction would commit at ${minCommitTs}, ahead of the clock`)
}

async function committedAt(
  { api }: TransactionContext,
  primary: Uint8Array,
  startTs: Timestamp,
): Promise<Timestamp | undefined> {
  const asked = { primary, lockTs: startTs, callerStartTs: 0, currentTs: 0, rollbackIfNotExist: false }
  const { status, commitTs } = await api.checkTxnStatus(asked)
  return status === 'committed' ? commitTs : undefined
}
