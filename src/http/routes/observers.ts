import type { FastifyInstance, FastifyRequest } from 'fastify'
import { OwnedNames } from '../../access/shares.js'
import type { PageRequest } from '../../bytes/sorted-map.js'
import { LIST_LIMIT_DEFAULT } from '../../limits.js'
import { noSuchObserver, type Observer } from '../../observers/rules/observer.js'
import type { ObserverState, Parked, Registration } from '../../observers/rules/observers-api.js'
import { answer } from '../wire/answer.js'
import { encodeListCursor } from '../wire/cursor.js'
import { type Decoded, decoderOf } from '../wire/decode.js'
import { answerPage, askedPage, LISTING } from '../wire/list-page.js'
import { nameInPath } from '../wire/name.js'
import type { RawQuery } from '../wire/query.js'
import { givenRangeOf } from '../wire/range.js'
import * as schemas from '../wire/schemas/observers.js'
import type { Static } from '../wire/schemas/schema.js'
import type { AppContext } from './context.js'

const OBSERVER = '/v1/observers/:name'
/** Parked cells per read. */
const PARKED_PAGE = 256

/** Each call needs a token that covers the whole range of its observer. Other observers look as if they did not exist. */
export function observerRoutes(app: FastifyInstance, { database, limits, traffic }: AppContext): void {
  const { observers, store } = database

  /** @throws KvError `not_found` */
  async function observerOf(request: FastifyRequest): Promise<Observer> {
    const name = nameInPath(request, 'observer')
    await observers.refreshIfUnknown([name])
    const observer = store.observed.named(name)
    if (observer === undefined || !request.grant.mayAccessRange(observer.range)) throw noSuchObserver(name)
    return observer
  }

  // ---- Registration

  const owned = new OwnedNames(limits.observersMax, 'observers', (name) => store.observed.named(name) !== undefined)
  const decodePut = decoderOf(schemas.put.body, limits)
  app.put(OBSERVER, { schema: schemas.put, config: { access: 'write' } }, async (request, reply) => {
    const name = nameInPath(request, 'observer')
    const registration = registrationOf(await decodePut(request))
    const put = () => observers.put(name, registration)
    const { state, isNew } = await owned.making(name, request.grant.identity, put)
    return answer(request, reply.status(isNew ? 201 : 200), shown(state))
  })

  const listing = { schema: schemas.list, config: { access: 'read', query: LISTING } } as const
  app.get('/v1/observers', listing, (request, reply) => {
    const read = (page: PageRequest) => observers.page(page, (range) => request.grant.mayAccessRange(range))
    return answerPage(request, reply, 'observers', store.cursorSecret, read, shown)
  })

  app.get(OBSERVER, { schema: schemas.get, config: { access: 'read' } }, async (request, reply) =>
    answer(request, reply, shown(await observers.get((await observerOf(request)).name))),
  )

  const removing = { schema: schemas.remove, config: { access: 'write', bodyMayBeEmpty: true } } as const
  app.delete(OBSERVER, removing, async (request, reply) => {
    await observers.remove((await observerOf(request)).name)
    return answer(request, reply, {})
  })

  // ---- Claims

  const decodeClaim = decoderOf(schemas.claim.body, limits)
  const claiming = { schema: schemas.claim, config: { access: 'write', work: 'reading' } } as const
  app.post(`${OBSERVER}/claim`, claiming, async (request, reply) => {
    const { name } = await observerOf(request)
    const { waitMs = 0, ...asked } = await decodeClaim(request)
    let notifications = await observers.claim(name, asked)
    let hasGone = reply.raw.destroyed
    if (notifications.length === 0 && waitMs > 0) {
      const watch = traffic.openWatch(request, reply, { endedWaitMs: 0 })
      try {
        notifications = await observers.claim(name, { ...asked, waitMs, signal: watch.signal })
      } finally {
        watch.end()
      }
      hasGone = reply.raw.destroyed || request.raw.socket.readableEnded
      if (notifications.length === 0) request.raw.letIn?.require() // Claims are given back below, or handed out.
    }
    // Without a client the claims would not be run, and the end of their leases would count as a failed attempt.
    if (hasGone && notifications.length > 0) {
      await observers.release(name, notifications)
      notifications = []
    }
    return answer(request, reply, {
      notifications: notifications.map(({ key, commitTs, kind, fence, attempt, found, value, old }) => {
        return { key, commitTs, kind, fence, attempt, found, value, old }
      }),
    })
  })

  const ending = { access: 'write', work: 'ending' } as const
  const decodeExtend = decoderOf(schemas.extend.body, limits)
  app.post(`${OBSERVER}/extend`, { schema: schemas.extend, config: ending }, async (request, reply) => {
    const { name } = await observerOf(request)
    const { claims, leaseMs } = await decodeExtend(request)
    const lost = await observers.extend(name, claims, leaseMs)
    return answer(request, reply, { lost: lost.map(({ key, fence }) => ({ key, fence })) })
  })

  const decodeRelease = decoderOf(schemas.release.body, limits)
  app.post(`${OBSERVER}/release`, { schema: schemas.release, config: ending }, async (request, reply) => {
    const { name } = await observerOf(request)
    const { claims } = await decodeRelease(request)
    const { released, parked } = await observers.release(name, claims)
    return answer(request, reply, { released, parked })
  })

  // ---- Cells

  const decodeNotify = decoderOf(schemas.notify.body, limits)
  app.post(`${OBSERVER}/notify`, { schema: schemas.notify, config: { access: 'write' } }, async (request, reply) => {
    const { name } = await observerOf(request)
    const { keys } = await decodeNotify(request)
    const { notified, ts } = await observers.notify(name, keys)
    return answer(request, reply, { notified, ts })
  })

  const parkedLimits = { limitDefault: LIST_LIMIT_DEFAULT, limitMax: limits.scanLimitMax }
  const parkedOptions = { schema: schemas.parked, config: { access: 'read', query: ['limit', 'cursor'] } } as const
  app.get(`${OBSERVER}/parked`, parkedOptions, async (request, reply) => {
    const { name: observer } = await observerOf(request)
    const query = request.query as RawQuery
    const { limit, after } = askedPage<Uint8Array>(query, 'parked', observer, parkedLimits, store.cursorSecret)
    const { parked, next } = await parkedPage(observer, limit, after)
    return answer(request, reply, {
      parked: parked.map(({ key, commitTs, attempts, error, parkedAtMs }) => {
        return { key, commitTs, attempts, error, parkedAt: momentOf(parkedAtMs) }
      }),
      cursor: next && encodeListCursor('parked', { of: observer, limit, after: next }, store.cursorSecret),
    })
  })

  /** Ends early once its keys and errors have `pageBytesMax` bytes. */
  async function parkedPage(name: string, limit: number, after: Uint8Array | undefined) {
    const parked: Parked[] = []
    let next = after
    let bytes = 0
    do {
      const page = await observers.parked(name, { limit: Math.min(PARKED_PAGE, limit - parked.length), after: next })
      next = page.next
      parked.push(...page.parked)
      for (const { key, error } of page.parked) bytes += key.length + error.length
    } while (next !== undefined && parked.length < limit && bytes < limits.pageBytesMax)
    return { parked, next }
  }

  const decodeRetry = decoderOf(schemas.retry.body, limits)
  const retrying = { schema: schemas.retry, config: { access: 'write', bodyMayBeEmpty: true } } as const
  app.post(`${OBSERVER}/retry`, retrying, async (request, reply) => {
    const { name } = await observerOf(request)
    const { keys } = await decodeRetry(request)
    return answer(request, reply, { retried: await observers.retry(name, keys) })
  })

  const decodeSkip = decoderOf(schemas.skip.body, limits)
  app.post(`${OBSERVER}/skip`, { schema: schemas.skip, config: { access: 'write' } }, async (request, reply) => {
    const { name } = await observerOf(request)
    const { keys } = await decodeSkip(request)
    return answer(request, reply, { skipped: await observers.skip(name, keys) })
  })

  // ---- State

  const changing = { access: 'write', bodyMayBeEmpty: true } as const
  app.post(`${OBSERVER}/backfill`, { schema: schemas.backfill, config: changing }, async (request, reply) =>
    answer(request, reply.status(202), shown(await observers.backfill((await observerOf(request)).name))),
  )
  app.post(`${OBSERVER}/pause`, { schema: schemas.change, config: changing }, async (request, reply) =>
    answer(request, reply, shown(await observers.pause((await observerOf(request)).name))),
  )
  app.post(`${OBSERVER}/resume`, { schema: schemas.change, config: changing }, async (request, reply) =>
    answer(request, reply, shown(await observers.resume((await observerOf(request)).name))),
  )
}

function registrationOf(body: Decoded<Static<typeof schemas.put.body>>): Registration {
  const { prefix, start, end, ...options } = body
  return { range: givenRangeOf({ prefix, start, end }, 'prefix'), ...options }
}

function shown(observer: ObserverState) {
  const { name, range, maxAttempts, backoffMs, backoffMaxMs, maxDepth, sinceTs, state } = observer
  const { pending, pendingIsExact, claimed, delayed, parked, lagMs, acks, conflicts, workers } = observer
  return {
    name,
    ...range,
    maxAttempts,
    backoffMs,
    backoffMaxMs,
    maxDepth,
    sinceTs,
    state,
    pending,
    pendingIsExact,
    claimed,
    delayed,
    parked,
    lagMs: Math.max(0, Math.round(lagMs)),
    acks,
    conflicts,
    workers: workers.map(({ worker, claimed, seenAtMs }) => ({ worker, claimed, seenAt: momentOf(seenAtMs) })),
  }
}

function momentOf(unixMs: number): string {
  return new Date(unixMs).toISOString()
}
