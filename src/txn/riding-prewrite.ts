import { keyText } from '../bytes/key-text.js'
import type { Attached } from '../coordinator/attaches.js'
import { type CommitPlan, Committer, type TransactionHome } from '../coordinator/committer.js'
import { mayRide, type Rides } from '../coordinator/ride.js'
import { Undetermined } from '../coordinator/undetermined.js'
import { invalid } from '../errors/kv-error.js'
import type { PrewriteAnswer, PrewriteRequest } from '../percolator/api.js'
import type { Riders } from '../percolator/riders.js'
import { sameKey } from '../percolator/row.js'
import type { Timestamp } from '../timestamp.js'

/**
 * A prewrite of a client that coordinates its transaction itself. With acknowledgements or notifications, in a store that needs two phases for
 * them, this process commits the transaction, with this request or not at all. Rows of keys that are attached to leases go with them.
 * @throws as `Transaction.commit`.
 */
export function ridingPrewrite(home: TransactionHome, request: PrewriteRequest): Promise<PrewriteAnswer> {
  const { riders } = request
  return riders === undefined ? home.api.prewrite(request) : withRiders(home, request, riders)
}

async function withRiders(home: TransactionHome, request: PrewriteRequest, riders: Riders): Promise<PrewriteAnswer> {
  const { rides, api, attaches, commitOptions } = home
  const isRiding = rides !== undefined && mayRide(riders)
  if (isRiding && (!request.tryOnePc || request.maxCommitTs))
    throw invalid('riders', 'riders need try_one_pc, and no max_commit_ts')
  const { leases = [] } = riders
  const isTaken = commitOptions.onePhase || isRiding // Else the store refuses it.
  const attached = leases.length > 0 && isTaken ? await attaches?.(request.mutations, leases) : undefined
  const whole = attached === undefined ? request : withRows(request, attached)
  try {
    return await (isRiding ? commitRiding(home, rides, whole, riders) : api.prewrite(whole))
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
  home: TransactionHome,
  rides: Rides,
  request: PrewriteRequest,
  riders: Riders,
): Promise<PrewriteAnswer> {
  const { startTs, mutations, forUpdateTs, forUpdateTsMax, pessimisticActions, minCommitTs, reads, stages } = request
  await requireDecidable(home, request, riders)
  const asked = { riders, startTs, mutations, resolver: home.resolver, lockWaitMs: 0, signal: undefined }
  const ride = await rides({ ...asked, mayRepeat: true })
  if (ride.committedAt !== undefined) return { onePcCommitTs: ride.committedAt }
  const all = [...mutations, ...ride.mutations]
  const isNamed = all.some(({ key }) => sameKey(key, request.primary))
  const primary = isNamed ? request.primary : all[0]?.key
  if (primary === undefined) throw invalid('mutations', 'there is nothing to commit')
  const grants = new Map(mutations.map(({ key }, i) => [keyText(key), forUpdateTsMax?.[i] ?? forUpdateTs ?? 0]))
  const actions = new Map(mutations.map(({ key }, i) => [keyText(key), pessimisticActions?.[i]]))
  const plan: CommitPlan = {
    ...{ startTs, primary, reads, stages, startedAt: performance.now() },
    mutations: all,
    riders: riders.leases?.length || riders.positions?.length ? { ...riders, acks: [], notify: [] } : undefined,
    forUpdateTs: forUpdateTs || undefined,
    grantedAt: forUpdateTs ? (key) => grants.get(keyText(key)) ?? 0 : undefined,
    actionOf: (key) => actions.get(keyText(key)),
    minCommitTs,
    isFirst: false,
    lockWaitMs: 0,
    signal: undefined,
    markDepth: ride.markDepth,
  }
  const committed = (commitTs: Timestamp): PrewriteAnswer => {
    home.inBackground(ride.committed())
    return { onePcCommitTs: commitTs }
  }
  try {
    return committed(await new Committer(home, plan).run())
  } catch (error) {
    // A repeat whose first copy has committed finds rows of it that are gone.
    const commitTs = await committedAt(home, primary, startTs).catch(() => undefined)
    if (commitTs !== undefined) return committed(commitTs)
    throw error instanceof Undetermined ? error.cause : ride.refusal(error)
  }
}

/**
 * The acknowledgement is decided before the locks stand. What is written to an observed key between the two has to be a conflict, else the own write
 * would hide it from the observer.
 */
async function requireDecidable(
  { api }: TransactionHome,
  { mutations, minCommitTs = 0, skipConstraintCheck, pessimisticActions }: PrewriteRequest,
  { acks = [] }: Riders,
): Promise<void> {
  if (skipConstraintCheck) throw invalid('skip_constraint_check', 'skip_constraint_check does not go with riders here')
  const skipped = new Set(mutations.flatMap(({ key }, i) => (pessimisticActions?.[i] === 'skip' ? [keyText(key)] : [])))
  if (acks.some(({ key }) => skipped.has(keyText(key))))
    throw invalid('pessimistic_actions', 'a key that is acknowledged cannot be skipped')
  if (minCommitTs > 0 && minCommitTs > (await api.now()))
    throw invalid('riders', `the transaction would commit at ${minCommitTs}, ahead of the clock`)
}

async function committedAt(
  { api }: TransactionHome,
  primary: Uint8Array,
  startTs: Timestamp,
): Promise<Timestamp | undefined> {
  const asked = { primary, lockTs: startTs, callerStartTs: 0, currentTs: 0, rollbackIfNotExist: false }
  const { status, commitTs } = await api.checkTxnStatus(asked)
  return status === 'committed' ? commitTs : undefined
}
