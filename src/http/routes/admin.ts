import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { PageRequest } from '../../bytes/sorted-map.js'
import type { PinState } from '../../database/database.js'
import { invalid } from '../../errors/kv-error.js'
import { PIN_TTL_MS_DEFAULT } from '../../limits.js'
import { answer } from '../wire/answer.js'
import { decoderOf } from '../wire/decode.js'
import { answerPage, LISTING } from '../wire/list-page.js'
import { rangeOf } from '../wire/range.js'
import * as schemas from '../wire/schemas/admin.js'
import type { AppContext } from './context.js'

export function adminRoutes(app: FastifyInstance, { database, limits }: AppContext): void {
  const config = { access: 'admin', bodyMayBeEmpty: true } as const
  const ending = { ...config, work: 'ending' } as const // A collection resolves locks, so it must run when there are too many.

  const decodeGc = decoderOf(schemas.collect.body, limits)
  app.post('/v1/admin/gc', { schema: schemas.collect, config: ending }, async (request, reply) => {
    const { safePoint, lifeTimeMs } = await decodeGc(request)
    if (safePoint !== undefined && lifeTimeMs !== undefined)
      throw invalid('safe_point', 'give safe_point or life_time_ms, not both')
    const run = await database.collect({ safePoint, lifeTimeMs })
    return answer(request, reply, {
      safePoint: run.safePoint,
      versionsRemoved: run.versionsRemoved,
      heldBackBy: run.heldBackBy,
    })
  })

  const decodeCompact = decoderOf(schemas.compact.body, limits)
  app.post('/v1/admin/compact', { schema: schemas.compact, config }, async (request, reply) => {
    const range = rangeOf(await decodeCompact(request), 'prefix')
    return answer(request, reply, { ...(await database.compact(range)) })
  })

  const decodePin = decoderOf(schemas.createPin.body, limits)
  app.post('/v1/admin/pins', { schema: schemas.createPin, config }, async (request, reply) => {
    const { ts, ttlMs = PIN_TTL_MS_DEFAULT } = await decodePin(request)
    return answer(request, reply.status(201), shown(await database.createPin({ ts, ttlMs })))
  })

  const listing = { schema: schemas.listPins, config: { access: 'admin', query: LISTING } } as const
  app.get('/v1/admin/pins', listing, (request, reply) => {
    const read = (page: PageRequest) => database.listPins(page)
    return answerPage(request, reply, 'pins', database.store.cursorSecret, read, shown)
  })

  const decodeRenew = decoderOf(schemas.renewPin.body, limits)
  app.put('/v1/admin/pins/:pin', { schema: schemas.renewPin, config: ending }, async (request, reply) => {
    const { ttlMs = PIN_TTL_MS_DEFAULT } = await decodeRenew(request)
    return answer(request, reply, shown(await database.renewPin(idOf(request), ttlMs)))
  })

  const removing = { schema: schemas.removePin, config: { access: 'admin', work: 'ending' } } as const
  app.delete('/v1/admin/pins/:pin', removing, async (request, reply) => {
    await database.removePin(idOf(request))
    return answer(request, reply, {})
  })
}

function idOf(request: FastifyRequest): string {
  return (request.params as { readonly pin: string }).pin
}

function shown({ pin, ts, expiresAtMs }: PinState) {
  return { pin, ts, expiresAt: new Date(expiresAtMs).toISOString() }
}
