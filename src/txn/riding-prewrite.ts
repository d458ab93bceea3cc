import { keyText } from '../bytes/key-text.js'
import type { Attached } from '../coordinator/attaches.js'
import { type CommitPlan, Committer, type TransactionContext } from '../coordinator/committer.js'
import { mayRide, type Rides } from '../coordinator/ride.js'
import { Undetermined } from '../coordinator/undetermined.js'
import { invalid } from '../errors/kv-error.js'
import type { PessimisticAction, PrewriteAnswer, PrewriteRequest } from '../percolator/api.js'
import type { Riders } from '../percolator/riders.js'
import { sameKey } from '../percolator/row.js'
import type { Timestamp } from '../timestamp.js'

/**
 * The prewrite of a client that coordinates its own transaction. If it has acknowledgements or notifications, and the
 * store needs two phases for them, this process commits the transaction, within this request or not at all. Rows of
 * keys that are attached to leases go with it.
 * @throws as `Transaction.commit`.
 */
export function ridingPrewrite(context: TransactionContext, request: PrewriteRequest): Promise<PrewriteAnswer> {
  const { riders } = request
  return riders === undefined ? context.api.prewrite(request) : withRiders(context, request, riders)
}

async function withRiders(
  context: TransactionContext,
  request: PrewriteRequest,
  riders: Riders,
): Promise<PrewriteAnswer> {
  const { rides, api, attaches, commitOptions } = context
  const isRiding = rides !== undefined && mayRide(riders)
  const { leases = [] } = riders
  const isTaken = commitOptions.onePhase || isRiding // Otherwise the store refuses the request.
  const attached = leases.length > 0 && isTaken ? await attaches?.(request.mutations, leases) : undefined
  const whole = attached === undefined ? request : withRows(request, attached)
  try {
    return await (isRiding ? commitRiding(context, rides, whole, riders) : api.prewrite(whole))
  } finally {
    attached?.done()
  }
}

function withRows(request: PrewriteRequest, { rows }: Attached): PrewriteRequest {
  const { mutations, pessimisticActions } = request
  const actions = pessimisticActions && [...pessimisticActions, ...rows.map(() => 'skip' as const)]
  return { ...request, mutations: [...mutations, ...rows], pessimisticActions: actions }
}

async function commitRiding(
  context: TransactionContext,
  rides: Rides,
  request: PrewriteRequest,
  riders: Riders,
): Promise<PrewriteAnswer> {
  const { startTs, mutations, forUpdateTs, forUpdateTsMax, pessimisticActions, minCommitTs, reads, stages } = request
  const places = new Map(mutations.map(({ key }, i) => [keyText(key), i]))
  const placeOf = (key: Uint8Array): number => places.get(keyText(key)) ?? -1
  const actionOf = (key: Uint8Array): PessimisticAction | undefined => pessimisticActions?.[placeOf(key)]
  await requireDecidable(context, request, riders, actionOf)
  const asked = { riders, startTs, mutations, resolver: context.resolver, lockWaitMs: 0 }
  const ride = await rides({ ...asked, mayRepeat: true })
  if (ride.committedAt !== undefined) return { onePcCommitTs: ride.committedAt }
  const all = [...mutations, ...ride.mutations]
  const isNamed = all.some(({ key }) => sameKey(key, request.primary))
  const primary = (isNamed ? undefined : all[0]?.key) ?? request.primary
  const plan: CommitPlan = {
    ...{ startTs, primary, reads, stages, startedAt: performance.now() },
    mutations: all,
    riders: riders.leases?.length || riders.positions?.length ? { ...riders, acks: [], notify: [] } : undefined,
    forUpdateTs: forUpdateTs || undefined,
    grantedAt: forUpdateTs ? (key) => forUpdateTsMax?.[placeOf(key)] ?? forUpdateTs : undefined,
    actionOf,
    minCommitTs,
    lockWaitMs: 0,
    markDepth: ride.markDepth,
  }
  const committed = (commitTs: Timestamp): PrewriteAnswer => {
    context.inBackground(ride.committed())
    return { onePcCommitTs: commitTs }
  }
  try {
    return committed(await new Committer(context, plan).run())
  } catch (error) {
    // A repeat whose first copy has committed finds that some of its rows are gone.
    const commitTs = await committedAt(context, primary, startTs).catch(() => undefined)
    if (commitTs !== undefined) return committed(commitTs)
    throw error instanceof Undetermined ? error.cause : ride.refusal(error)
  }
}

/**
 * The acknowledgement is decided before the locks are placed. A write to an observed key in between has to be a
 * conflict, or the transaction's own write would hide it from the observer.
 */
async function requireDecidable(
  { api }: TransactionContext,
  { minCommitTs = 0, skipConstraintCheck }: PrewriteRequest,
  { acks = [] }: Riders,
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
