import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { MergedVersion, Transaction } from '../../coordinator/transaction.js'
import { invalid, isKvError } from '../../errors/kv-error.js'
import type { LateSignal } from '../../event-loop/late-signal.js'
import { TXN_TTL_MS_DEFAULT } from '../../limits.js'
import { requireChecks } from '../../txn/check.js'
import { runOps } from '../../txn/op.js'
import { rawBodies, rawValueOf } from '../admission/raw-bodies.js'
import { hangUp } from '../connections/answer-end.js'
import { answer } from '../wire/answer.js'
import { answerVersion, preconditionFailed } from '../wire/answer-version.js'
import { decoderOf } from '../wire/decode.js'
import { checksOf, preconditionsOf } from '../wire/etag.js'
import { answerOutcome, idempotencyOf } from '../wire/idempotency-key.js'
import { keyOf, TXN_KEY_ROUTE } from '../wire/key-url.js'
import { lockWaitMs, queryFlag, type RawQuery } from '../wire/query.js'
import * as schemas from '../wire/schemas.js'
import { isWrite, opOf } from '../wire/wire-op.js'
import type { AppContext } from './context.js'
import { admitStream, answerScan, readScan, SCAN_PARAMETERS } from './scan.js'

/** `/v1/txn/begin` and `/v1/txn/{txn}/...`: transactions over several requests. */
export function interactiveRoutes(app: FastifyInstance, context: AppContext): void {
  const { store, openTransactions, limits } = context
  /** An id is no use to anybody but who began the transaction. @throws KvError `txn_not_found` */
  function txnOf(request: FastifyRequest): string {
    const { txn } = request.params as { readonly txn: string }
    openTransactions.requireOwner(txn, request.grant.identity)
    return txn
  }

  const decodeBegin = decoderOf(schemas.TxnBeginBody, limits)
  app.post(
    '/v1/txn/begin',
    { schema: { body: schemas.TxnBeginBody }, config: { access: 'read', bodyMayBeEmpty: true, work: 'reading' } },
    async (request, reply) => {
      const { mode = 'optimistic', isolation = 'snapshot', ttlMs = TXN_TTL_MS_DEFAULT } = await decodeBegin(request)
      if (mode === 'pessimistic') request.grant.requireWrite()
      const { identity: owner } = request.grant
      const begun = await openTransactions.begin({ mode, isolation, ttlMs, owner })
      return answer(request, reply.status(201), begun)
    },
  )

  app.get(
    TXN_KEY_ROUTE,
    { config: { access: 'read', query: ['for_update', 'lock_wait_ms'] } },
    async (request, reply) => {
      const query = request.query as RawQuery
      const key = keyOf(request, limits)
      const wait = lockWaitMs(query)
      const signal = hangUp(reply.raw)
      const forUpdate = queryFlag(query, 'for_update') ?? false
      if (forUpdate) request.grant.requireWrite()
      preconditionsOf(request.headers) // A malformed one is refused before anything is locked.
      const found = forUpdate
        ? await openTransactions.write(txnOf(request), (txn) => txn.getForUpdate(key, wait, signal))
        : await openTransactions.read(txnOf(request), (txn) => txn.get(key, wait, signal))
      return answerVersion(request, reply, key, found)
    },
  )

  app.get('/v1/txn/:txn/kv', { config: { access: 'read', query: SCAN_PARAMETERS } }, async (request, reply) => {
    const id = txnOf(request)
    const asked = readScan(request, context)
    const wait = lockWaitMs(request.query as RawQuery)
    const signal = hangUp(reply.raw)
    const { startTs } = openTransactions.state(id)
    if (asked.cursor !== undefined && asked.cursor.ts !== startTs)
      throw invalid('cursor', 'the cursor is of another snapshot than the transaction’s')
    admitStream(reply, context, asked)
    return answerScan(request, reply, context, asked, {
      ts: startTs,
      scan: (range) => openTransactions.read(id, (txn) => txn.scan(range, wait, signal)),
    })
  })

  /** A conditional write holds on to what it has seen: reading for update makes a change of it a conflict. */
  async function requirePreconditions(
    request: FastifyRequest,
    txn: Transaction,
    key: Uint8Array,
    signal: LateSignal,
  ): Promise<void> {
    const checks = checksOf(key, preconditionsOf(request.headers))
    if (checks.length === 0) return
    const found: MergedVersion | undefined = await txn.getToWrite(key, lockWaitMs(request.query as RawQuery), signal)
    try {
      requireChecks(checks, () => found)
    } catch (error) {
      if (isKvError(error, 'precondition_failed'))
        throw preconditionFailed(key, found?.commitTs ?? 0, found !== undefined)
      throw error
    }
  }

  rawBodies(app, context, (scope) => {
    const writing = { access: 'write', query: ['lock_wait_ms'], work: 'reading' } as const
    scope.put(TXN_KEY_ROUTE, { config: writing }, async (request, reply) => {
      const key = keyOf(request, limits)
      const value = rawValueOf(request, limits)
      const wait = lockWaitMs(request.query as RawQuery)
      const signal = hangUp(reply.raw)
      await openTransactions.write(txnOf(request), async (txn) => {
        await requirePreconditions(request, txn, key, signal)
        await txn.put(key, value, wait, signal)
      })
      return answer(request, reply, {})
    })
    scope.delete(TXN_KEY_ROUTE, { config: writing }, async (request, reply) => {
      const key = keyOf(request, limits)
      const wait = lockWaitMs(request.query as RawQuery)
      const signal = hangUp(reply.raw)
      await openTransactions.write(txnOf(request), async (txn) => {
        await requirePreconditions(request, txn, key, signal)
        await txn.delete(key, wait, signal)
      })
      return answer(request, reply, {})
    })
  })

  const decodeOps = decoderOf(schemas.TxnOpsBody, limits)
  const opsOptions = { schema: { body: schemas.TxnOpsBody }, config: { access: 'read', work: 'reading' } } as const
  app.post('/v1/txn/:txn/ops', opsOptions, async (request, reply) => {
    const given = (await decodeOps(request)).ops
    if (given.some(isWrite)) request.grant.requireWrite()
    const ops = given.map(opOf)
    const read = store.answers.lease()
    const run = (txn: Transaction) => txn.atomically(async () => runOps(txn, ops, read))
    try {
      const results = await openTransactions.write(txnOf(request), run)
      return answer(request, reply, { results }) // Not awaited: that would be until the client has taken it.
    } finally {
      read.end()
    }
  })

  const ending = { access: 'read', bodyMayBeEmpty: true, work: 'ending' } as const
  app.post('/v1/txn/:txn/commit', { schema: { body: schemas.NothingBody }, config: ending }, async (request, reply) => {
    const id = txnOf(request)
    const outcome = await openTransactions.commit(id, await idempotencyOf(request, { commit: id }))
    return answerOutcome(request, reply, outcome, outcome.answer)
  })

  app.post(
    '/v1/txn/:txn/rollback',
    { schema: { body: schemas.NothingBody }, config: ending },
    async (request, reply) => {
      await openTransactions.rollback(txnOf(request))
      return answer(request, reply, {})
    },
  )

  app.get('/v1/txn/:txn', { config: { access: 'read', work: 'ending' } }, async (request, reply) =>
    answer(request, reply, openTransactions.state(txnOf(request))),
  )
}
