import type { FastifyInstance } from 'fastify'
import { KvError } from '../../errors/kv-error.js'
import { answer, answerProblem } from '../wire/answer.js'
import { problemOf } from '../wire/problem.js'
import * as schemas from '../wire/schemas/status.js'
import type { AppContext } from './context.js'

/** Probes are never shed and need no token. */
const PROBING = { access: 'open', work: 'watching' } as const
const WATCHING = { access: 'read', work: 'watching' } as const

export function statusRoutes(
  app: FastifyInstance,
  { database, version, durability, traffic, member }: AppContext,
): void {
  const startedAt = performance.now()

  app.get('/livez', { schema: schemas.alive, config: PROBING }, (request, reply) =>
    answer(request, reply, { status: 'ok' }),
  )

  app.get('/readyz', { schema: schemas.ready, config: PROBING }, (request, reply) => {
    const error = unreadiness()
    if (error === undefined) return answer(request, reply, { status: 'ready' })
    return answerProblem(request, reply, problemOf(error, request.id))
  })

  function unreadiness(): KvError | undefined {
    const fault = database.probe()
    if (fault !== undefined) return new KvError('storage_unavailable', fault, {})
    const overload = database.store.figures.oracle.late ?? traffic.overload
    return overload === undefined ? undefined : new KvError('overloaded', overload, {})
  }

  app.get('/v1/status', { schema: schemas.serverStatus, config: WATCHING }, (request, reply) => {
    const {
      store,
      capabilities: traits,
      fault,
      safePoint,
      restoring,
      locks,
      openTransactions,
      gc,
      feed,
      ...held
    } = database.status()
    const { count, pending, parked, lagMs } = database.observers.summary()
    const consumers = database.changes.consumers.summary()
    const leases = database.leases.summary()
    const { resolvedTs, lagMs: feedLagMs, heldBackBy, live, behind } = feed
    const { mayWrite, prefixes, expiresMs } = request.grant
    const { onePhaseCommit, plainOnePhaseCommit, ...capabilities } = traits
    return answer(request, reply, {
      version,
      store,
      capabilities: { onePhaseCommit: onePhaseCommit || plainOnePhaseCommit, ...capabilities },
      durability,
      ...(member !== undefined && { server: member.id, oracle: { ...member.role } }),
      ...(database.registry.isShared && { servers: database.registry.servers() }),
      uptimeMs: Math.floor(performance.now() - startedAt),
      writable: fault === undefined && restoring === undefined,
      ...(fault !== undefined && { fault }),
      safePoint,
      restoring,
      observers: { count, pending, parked, lagMs },
      feed: { resolvedTs, lagMs: Math.round(feedLagMs), heldBackBy, live, behind },
      consumers: { ...consumers, lagMs: Math.round(consumers.lagMs) },
      leases: { held: leases.held, waiting: leases.waiting },
      watches: traffic.status.watches,
      counts: { locks, openTransactions },
      overload: { ...traffic.status, ...held },
      gc,
      access: { mayWrite, prefixes, expiresAt: expiresMs && new Date(expiresMs).toISOString() },
    })
  })
}
