import type { FastifyInstance } from 'fastify'
import { KvError } from '../../errors/kv-error.js'
import { RETRY_AFTER_S } from '../../limits.js'
import type { Store } from '../../store/store.js'
import { answer, answerProblem } from '../wire/answer.js'
import { problemOf } from '../wire/problem.js'
import type { AppContext } from './context.js'

/** Never shed. */
const PROBING = { config: { access: 'open', work: 'watching' } } as const
const WATCHING = { config: { access: 'read', work: 'watching' } } as const

/** `/livez`: the process answers. `/readyz`: it can serve. `/v1/status`: what it is and how it is doing. */
export function statusRoutes(
  app: FastifyInstance,
  { store, version, durability, openTransactions, outcomes, traffic, gc }: AppContext,
): void {
  const startedAt = performance.now()

  app.get('/livez', PROBING, (request, reply) => answer(request, reply, { status: 'ok' }))

  app.get('/readyz', PROBING, (request, reply) => {
    const error = unreadiness()
    if (error === undefined) return answer(request, reply, { status: 'ready' })
    if (error.code === 'overloaded') reply.header('retry-after', RETRY_AFTER_S)
    const { status, body } = problemOf(error, request.id)
    return answerProblem(request, reply, status, body)
  })

  function unreadiness(): KvError | undefined {
    if (!store.probe()) {
      const detail = store.restoring ? 'a restore is not complete' : String(store.fault)
      return new KvError('storage_unavailable', detail, {})
    }
    const { overload } = traffic
    return overload === undefined ? undefined : new KvError('overloaded', overload, {})
  }

  app.get('/v1/status', WATCHING, (request, reply) =>
    answer(request, reply, {
      version,
      store: store.name,
      capabilities: store.capabilities,
      durability,
      uptimeMs: Math.floor(performance.now() - startedAt),
      writable: store.fault === undefined && store.restoring === undefined,
      ...(store.fault !== undefined && { fault: store.fault }),
      safePoint: store.safePoint,
      restoring: restoringOf(store),
      counts: { locks: store.lockCount, openTransactions: openTransactions.size },
      overload: { ...traffic.status, transactionBytes: openTransactions.bytes, outcomeBytes: outcomes.bytes },
      gc: gc.status,
    }),
  )
}

function restoringOf({ restoring }: Store) {
  if (restoring === undefined) return undefined
  const { id, ts, pairs, bytes } = restoring
  return { id, ts, pairs, bytes }
}
