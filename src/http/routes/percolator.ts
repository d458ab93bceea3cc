import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { invalid } from '../../errors/kv-error.js'
import { type Stages, timed } from '../../event-loop/stages.js'
import { LOCK_TTL_MS_DEFAULT, LOCK_WAITS_SHOWN_DEFAULT } from '../../limits.js'
import type {
  AcquirePessimisticLockRequest,
  LockingRequest,
  PrewriteRequest,
  ReadSet,
  ResolveLockRequest,
} from '../../percolator/api.js'
import { type CommitEffects, primaryOf } from '../../percolator/commit-effects.js'
import { sameKey } from '../../percolator/row.js'
import type { Access } from '../admission/access.js'
import type { Work } from '../admission/admission.js'
import { untilDeadline, waitingSignal } from '../connections/deadline.js'
import { answer } from '../wire/answer.js'
import { commitEffectsOf, refreshNamed, requireAccess } from '../wire/commit-effects.js'
import { type Decoded, decoderOf } from '../wire/decode.js'
import type { Answers } from '../wire/schemas/call-schema.js'
import * as schemas from '../wire/schemas/percolator.js'
import type { Schema, Static } from '../wire/schemas/schema.js'
import type { Plain } from '../wire/wire.js'
import type { AppContext } from './context.js'

type Body<S extends Schema> = Decoded<Static<S>> & LockingRequest

/** `POST /v1/percolator/{call}`: docs/api.md, "Percolator protocol". Checks each request and passes it to the store. */
export function percolatorRoutes(app: FastifyInstance, { database, limits }: AppContext): void {
  const { store } = database
  function call<S extends Schema>(
    name: string,
    access: Access,
    schema: { readonly body: S; readonly answers: Answers },
    handle: (body: Body<S>, request: FastifyRequest, reply: FastifyReply) => Plain | Promise<Plain>,
  ): void {
    const decode = decoderOf(schema.body, limits)
    const mayGiveUp = access === 'read' // The other calls are short once they have begun, or end their waits themselves.
    const query = mayGiveUp || name === 'acquire_pessimistic_lock' ? ['timeout_ms'] : []
    const config = { access, work: workOf(name), query, onlyReads: access === 'read' }
    app.post(`/v1/percolator/${name}`, { schema, config }, async (request, reply) => {
      const body = (await decode(request)) as Body<S>
      const { accessCheck } = request.grant
      // Set for every call here, so that no call can lack it.
      if (accessCheck !== undefined) Object.assign(body, { mayAccess: accessCheck })
      const stages = request.raw.progress?.stages
      if (stages !== undefined) Object.assign(body, { stages })
      const handled = async (): Promise<Plain> => {
        const answered = handle(body, request, reply)
        const isRead = access === 'read' && answered instanceof Promise
        return isRead ? timed(stages, 'readMs', answered) : answered
      }
      const data = await (mayGiveUp ? untilDeadline(request, reply, handled) : handled())
      if (stages?.intervals !== undefined) noteTxn(stages, name, 'startTs' in body ? body.startTs : undefined, data)
      return answer(request, reply, data)
    })
  }

  call('tso', 'read', schemas.tso, async ({ count = 1 }) => {
    const ts = await store.tsoForClient(count)
    return { ts, count, now: store.now() }
  })
  call('get', 'read', schemas.get, async (body) => {
    const answer = await store.get(body)
    return answer.found ? answer : { found: false }
  })
  call('batch_get', 'read', schemas.batchGet, (body) => store.batchGet(body))
  call('scan', 'read', schemas.scan, (body) => store.scan(body))
  call('prewrite', 'write', schemas.prewrite, async (body, { grant }) => {
    const commitEffects = body.riders && commitEffectsOf(body.riders, grant, limits, 'riders.')
    if (commitEffects === undefined) return store.prewrite(prewriteRequest(body, commitEffects))
    await refreshNamed(commitEffects, grant, database)
    requireAccess(commitEffects, grant, database)
    return database.prewrite(prewriteRequest(body, commitEffects))
  })
  call('commit', 'write', schemas.commit, (body) => {
    requireAfterStart(body.startTs, body.commitTs, 'commit_ts')
    return store.commit(body)
  })
  call('rollback', 'write', schemas.rollback, async (body) => {
    await store.rollback(body)
    return {}
  })
  call('cleanup', 'write', schemas.cleanup, async (body) => {
    await store.cleanup(body)
    return {}
  })
  call('check_txn_status', 'write', schemas.checkTxnStatus, (body) => store.checkTxnStatus(body))
  call('check_secondary_locks', 'write', schemas.checkSecondaryLocks, (body) => store.checkSecondaryLocks(body))
  call('txn_heart_beat', 'write', schemas.txnHeartBeat, (body) => store.txnHeartBeat(body))
  call('acquire_pessimistic_lock', 'write', schemas.acquirePessimisticLock, async (body, request, reply) => {
    const signal = waitingSignal(request, reply)
    const { results } = await store.acquirePessimisticLock({ ...acquireRequest(body), signal })
    return { results: results.map(({ commitTs: _, ...result }) => result) }
  })
  call('pessimistic_rollback', 'write', schemas.pessimisticRollback, async (body) => {
    await store.pessimisticRollback(body)
    return {}
  })
  call('validate_reads', 'read', schemas.validateReads, async ({ leases = [], ...body }, { grant }) => {
    const { startTs, commitTs } = body
    requireAfterStart(startTs, commitTs, 'commit_ts')
    for (const [place, { lease }] of leases.entries()) grant.requireKey(Buffer.from(lease), `leases[${place}].lease`)
    if (leases.length > 0) {
      // Otherwise the fence of a later grant could be below it.
      if (commitTs > (await store.tso(1))) throw invalid('commit_ts', 'commit_ts is in the future')
      await store.leases.require(leases, commitTs)
    }
    await store.validateReads({ ...body, ...readSetOf(body) })
    return {}
  })
  call('resolve_lock', 'write', schemas.resolveLock, (body, { grant }) => {
    if (body.keys === undefined) grant.requireEveryKey()
    return store.resolveLock(resolveLockRequest(body))
  })
  call('scan_lock', 'read', schemas.scanLock, async (body, { grant }) => {
    const lease = store.answers.lease(grant.identity)
    try {
      return await store.scanLock(body, lease)
    } finally {
      lease.end()
    }
  })
  call('get_lock_wait_info', 'read_all', schemas.getLockWaitInfo, ({ limit = LOCK_WAITS_SHOWN_DEFAULT }) => ({
    entries: store.lockWaits(limit),
  }))
  call('gc', 'admin', schemas.gc, ({ safePoint }) => database.gc(safePoint))
  call('mvcc_get_by_key', 'read', schemas.mvccGetByKey, (body) => store.mvccGetByKey(body))
  call('mvcc_get_by_start_ts', 'read', schemas.mvccGetByStartTs, (body) => store.mvccGetByStartTs(body))
  call('delete_range', 'admin', schemas.deleteRange, async (body) => {
    await store.deleteRange(body)
    return {}
  })
}

const ENDING = [
  'commit',
  'rollback',
  'cleanup',
  'check_txn_status',
  'check_secondary_locks',
  'txn_heart_beat',
  'pessimistic_rollback',
  'resolve_lock',
  'gc',
]
const WRITING = ['prewrite', 'delete_range']

function workOf(call: string): Work {
  if (ENDING.includes(call)) return 'ending'
  return WRITING.includes(call) ? 'writing' : 'reading'
}

function requireAfterStart(startTs: number, commitTs: number, field: string): void {
  if (commitTs <= startTs) throw invalid(field, `${field} must be above start_ts`)
}

/** @throws KvError `invalid_argument` for combinations of fields that the schema cannot express. */
function prewriteRequest(
  body: Body<typeof schemas.prewrite.body>,
  commitEffects: CommitEffects | undefined,
): PrewriteRequest {
  const { mutations, forUpdateTs, pessimisticActions, tryOnePc } = body
  for (const [index, { op, value, expireTs, leaseFence, keepsLease }] of mutations.entries()) {
    const field = `mutations[${index}].value`
    if ((op === 'put' || op === 'insert') !== (value !== undefined))
      throw invalid(field, value === undefined ? `${field} is missing` : `${field} does not go with ${op}`)
    if (expireTs !== undefined && value === undefined)
      throw invalid(`mutations[${index}].expire_ts`, `mutations[${index}].expire_ts does not go with ${op}`)
    if (leaseFence !== undefined && value === undefined)
      throw invalid(`mutations[${index}].lease_fence`, `mutations[${index}].lease_fence does not go with ${op}`)
    if (keepsLease && (op !== 'put' || leaseFence !== undefined))
      throw invalid(
        `mutations[${index}].keeps_lease`,
        `mutations[${index}].keeps_lease goes with put, and not with lease_fence`,
      )
    if (op === 'check_not_exists' && forUpdateTs !== undefined)
      throw invalid(`mutations[${index}].op`, 'check_not_exists does not go with for_update_ts')
  }
  if (forUpdateTs === undefined && pessimisticActions !== undefined)
    throw invalid('pessimistic_actions', 'pessimistic_actions needs for_update_ts')
  if (forUpdateTs !== undefined && pessimisticActions?.length !== mutations.length)
    throw invalid('pessimistic_actions', 'pessimistic_actions must have an entry for each mutation')
  if (body.forUpdateTsMax !== undefined && body.forUpdateTsMax.length !== mutations.length)
    throw invalid('for_update_ts_max', 'for_update_ts_max must have an entry for each mutation')
  if (commitEffects === undefined && mutations.length === 0)
    throw invalid('mutations', 'mutations must have an entry, unless there are riders')
  if (commitEffects !== undefined && (!tryOnePc || body.maxCommitTs !== undefined))
    throw invalid('riders', 'riders go with try_one_pc only, and not with max_commit_ts')
  // Commit effects without mutations leave nothing at a primary, and a token with prefixes could not name one for a consumer.
  const primary =
    body.primary ?? (mutations.length === 0 && commitEffects !== undefined ? primaryOf(commitEffects) : undefined)
  if (primary === undefined) throw invalid('primary', 'primary is missing')
  if (tryOnePc && mutations.length > 0 && !mutations.some(({ key }) => sameKey(key, primary)))
    throw invalid('primary', 'with try_one_pc the primary must be among the mutations')
  if (body.reads !== undefined && !tryOnePc) throw invalid('reads', 'reads go with try_one_pc only')
  const { lockTtl = LOCK_TTL_MS_DEFAULT } = body
  return { ...body, primary, reads: body.reads && readSetOf(body.reads), commitEffects, lockTtl }
}

function acquireRequest(body: Body<typeof schemas.acquirePessimisticLock.body>): AcquirePessimisticLockRequest {
  if (body.lockOnlyIfExists && !body.returnValues)
    throw invalid('lock_only_if_exists', 'lock_only_if_exists needs return_values')
  if (body.wakeUpMode === 'force_lock' && body.keys.length > 1)
    throw invalid('wake_up_mode', 'force_lock is for a single key')
  return { ...body, lockTtl: body.lockTtl ?? LOCK_TTL_MS_DEFAULT }
}

function readSetOf({ keys = [], ranges = [] }: Partial<ReadSet>): ReadSet {
  return { keys, ranges }
}

function resolveLockRequest(body: Body<typeof schemas.resolveLock.body>): ResolveLockRequest {
  const { startTs, commitTs, keys, txns, mayAccess } = body
  if (txns !== undefined) {
    if (startTs !== undefined || commitTs !== undefined || keys !== undefined)
      throw invalid('txns', 'txns does not go with start_ts, commit_ts or keys')
    for (const [index, txn] of txns.entries())
      if (txn.commitTs !== 0) requireAfterStart(txn.startTs, txn.commitTs, `txns[${index}].commit_ts`)
    return { txns, mayAccess }
  }
  if (startTs === undefined) throw invalid('start_ts', 'start_ts is missing')
  if (commitTs === undefined) throw invalid('commit_ts', 'commit_ts is missing')
  if (commitTs !== 0) requireAfterStart(startTs, commitTs, 'commit_ts')
  return { txns: [{ startTs, commitTs }], keys, mayAccess }
}

/** For the trace of a call that succeeded. The last phase of async commit is also a `commit`, which does not say so. */
function noteTxn(stages: Stages, name: string, startTs: unknown, answer: Plain): void {
  if (typeof startTs !== 'number') return
  const { onePcCommitTs, commitTs } = answer as { readonly onePcCommitTs?: unknown; readonly commitTs?: unknown }
  if (typeof onePcCommitTs === 'number') stages.txn = { startTs, commitTs: onePcCommitTs, kind: '1pc' }
  else if (name === 'commit' && typeof commitTs === 'number') stages.txn = { startTs, commitTs }
  else stages.txn = { startTs }
}
