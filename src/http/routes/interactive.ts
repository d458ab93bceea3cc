import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { invalid } from '../../errors/kv-error.js'
import { TXN_TTL_MS_DEFAULT } from '../../limits.js'
import { stampedKey } from '../../percolator/stamped-key.js'
import { conditionalWriteError } from '../../txn/failed-condition.js'
import { namedAt } from '../../txn/op.js'
import { rawBodies, rawValueOf } from '../admission/raw-bodies.js'
import { timeoutSignal, untilDeadline, waitingSignal } from '../connections/deadline.js'
import { answer } from '../wire/answer.js'
import { answerVersion } from '../wire/answer-version.js'
import { commitEffectsOf, leaseChecksOf, refreshNamed, requireAccess, requireObserved } from '../wire/commit-effects.js'
import { decoderOf } from '../wire/decode.js'
import { checksOf, preconditionsOf } from '../wire/etag.js'
import { EXPIRY_PARAMETERS, queryExpiry } from '../wire/expiry.js'
import { answerOutcome, idempotencyOf } from '../wire/idempotency-key.js'
import { requestKey, TXN_KEY_ROUTE } from '../wire/key-url.js'
import { lockWaitMs, queryFlag, type RawQuery } from '../wire/query.js'
import { readKeyInTxn, scanKeys } from '../wire/schemas/kv.js'
import * as schemas from '../wire/schemas/txn.js'
import { isWrite, opOf, requireKeysWithin } from '../wire/wire-op.js'
import type { AppContext } from './context.js'
import { forwardToOwners } from './forward-to-owners.js'
import { answerScan, readScan, SCAN_PARAMETERS } from './scan.js'

export function interactiveRoutes(app: FastifyInstance, context: AppContext): void {
  const { database, limits } = context
  const { transactions } = database
  if (database.registry.isShared) forwardToOwners(app, database.registry)

  /** Only the caller who began a transaction may use its id. @throws KvError `txn_not_found` */
  function txnOf(request: FastifyRequest): string {
    const { txn } = request.params as { readonly txn: string }
    transactions.requireOwner(txn, request.grant.identity)
    return txn
  }

  const decodeBegin = decoderOf(schemas.begin.body, limits)
  app.post(
    '/v1/txn/begin',
    { schema: schemas.begin, config: { access: 'read', bodyMayBeEmpty: true, work: 'reading' } },
    async (request, reply) => {
      const { mode = 'optimistic', isolation = 'snapshot', ttlMs = TXN_TTL_MS_DEFAULT } = await decodeBegin(request)
      if (mode === 'pessimistic') request.grant.requireWrite()
      const { identity: owner } = request.grant
      const begun = await transactions.begin({ mode, isolation, ttlMs, owner })
      return answer(request, reply.status(201), begun)
    },
  )

  app.get(
    TXN_KEY_ROUTE,
    { schema: readKeyInTxn, config: { access: 'read', query: ['for_update', 'lock_wait_ms', 'timeout_ms'] } },
    async (request, reply) => {
      const query = request.query as RawQuery
      const key = requestKey(request, limits)
      const wait = lockWaitMs(query)
      const forUpdate = queryFlag(query, 'for_update') ?? false
      if (forUpdate) request.grant.requireWrite()
      preconditionsOf(request.headers) // Malformed conditions must be refused before the key is locked.
      const read = { key, lockWaitMs: wait }
      const id = txnOf(request)
      const found = forUpdate
        ? await transactions.getForUpdate(id, { ...read, signal: waitingSignal(request, reply) })
        : await untilDeadline(request, reply, (signal) => transactions.get(id, { ...read, signal }))
      return answerVersion(request, reply, key, found)
    },
  )

  const scanning = { access: 'read', query: SCAN_PARAMETERS } as const
  app.get('/v1/txn/:txn/kv', { schema: scanKeys, config: scanning }, async (request, reply) => {
    const id = txnOf(request)
    const asked = readScan(request, context)
    const wait = lockWaitMs(request.query as RawQuery)
    const { startTs } = transactions.state(id)
    if (asked.cursor !== undefined && asked.cursor.ts !== startTs)
      throw invalid('cursor', 'the cursor belongs to another snapshot than that of the transaction')
    return answerScan(request, reply, context, asked, { txn: id, lockWaitMs: wait })
  })

  /** Reads the transaction and the conditions of a PUT or DELETE. */
  function writeOf(request: FastifyRequest, reply: FastifyReply, key: Uint8Array) {
    const wait = lockWaitMs(request.query as RawQuery)
    const id = txnOf(request)
    transactions.requireOpen(id) // This error takes precedence over that of a malformed condition.
    const checks = checksOf(key, preconditionsOf(request.headers))
    return { id, write: { key, checks, lockWaitMs: wait, signal: waitingSignal(request, reply) } }
  }

  rawBodies(app, context, (scope) => {
    const config = { access: 'write', query: ['lock_wait_ms', 'timeout_ms'], work: 'reading' } as const
    const writing = { schema: schemas.writeKeyInTxn, config } as const
    const putting = { ...writing, config: { ...config, query: [...config.query, ...EXPIRY_PARAMETERS] } } as const
    scope.put(TXN_KEY_ROUTE, putting, async (request, reply) => {
      const key = requestKey(request, limits)
      const expiry = queryExpiry(request.query as RawQuery)
      const value = rawValueOf(request, limits)
      const { id, write } = writeOf(request, reply, key)
      try {
        await transactions.put(id, { ...write, value, expiry })
      } catch (error) {
        throw conditionalWriteError(key, error)
      }
      return answer(request, reply, {})
    })
    scope.delete(TXN_KEY_ROUTE, writing, async (request, reply) => {
      const key = requestKey(request, limits)
      const { id, write } = writeOf(request, reply, key)
      try {
        await transactions.delete(id, write)
      } catch (error) {
        throw conditionalWriteError(key, error)
      }
      return answer(request, reply, {})
    })
  })

  const decodeOps = decoderOf(schemas.runOps.body, limits)
  const opsConfig = { access: 'read', query: ['timeout_ms'], work: 'reading' } as const
  const opsOptions = { schema: schemas.runOps, config: opsConfig }
  app.post('/v1/txn/:txn/ops', opsOptions, async (request, reply) => {
    const signal = waitingSignal(request, reply)
    const given = (await decodeOps(request)).ops
    if (given.some(isWrite)) request.grant.requireWrite()
    const ops = given.map(opOf)
    requireKeysWithin(ops, limits)
    const results = await transactions.run(txnOf(request), ops, signal)
    return answer(request, reply, { results: namedAt(results, undefined) })
  })

  const decodeCommit = decoderOf(schemas.commit.body, limits)
  const ending = { access: 'read', bodyMayBeEmpty: true, work: 'ending' } as const
  const committing = { ...ending, query: ['timeout_ms'] } as const
  app.post('/v1/txn/:txn/commit', { schema: schemas.commit, config: committing }, async (request, reply) => {
    const id = txnOf(request)
    const signal = timeoutSignal(request, reply)
    const { checks = [], ...body } = await decodeCommit(request)
    const commitEffects = commitEffectsOf({ ...body, leases: leaseChecksOf(checks) }, request.grant, limits)
    const idempotency = await idempotencyOf(request, { commit: id, riders: commitEffects })
    if (commitEffects !== undefined) {
      await refreshNamed(commitEffects, request.grant, database)
      requireAccess(commitEffects, request.grant, database)
      if (transactions.isOpen(id)) await requireObserved(commitEffects, database)
    }
    const outcome = await transactions.commit(id, idempotency, commitEffects, signal, request.raw.progress?.stages)
    const { commitTs, stamped } = outcome.answer
    const keys = stamped?.map((one) => stampedKey(one, commitTs))
    return answerOutcome(request, reply, outcome, { commitTs, ...(keys && { keys }) })
  })

  app.post('/v1/txn/:txn/rollback', { schema: schemas.rollback, config: ending }, async (request, reply) => {
    await transactions.rollback(txnOf(request))
    return answer(request, reply, {})
  })

  const watching = { schema: schemas.state, config: { access: 'read', work: 'ending' } } as const
  app.get('/v1/txn/:txn', watching, async (request, reply) =>
    answer(request, reply, transactions.state(txnOf(request))),
  )
}
