import type { FastifyInstance, FastifyRequest } from 'fastify'
import { invalid } from '../../errors/kv-error.js'
import type { Pin, Pins } from '../../gc/pins.js'
import { PIN_TTL_MS_DEFAULT } from '../../limits.js'
import { answer } from '../wire/answer.js'
import { decoderOf } from '../wire/decode.js'
import { rangeOf } from '../wire/range.js'
import * as schemas from '../wire/schemas.js'
import type { AppContext } from './context.js'

/** `/v1/admin/...`: what an operator asks of a running server. */
export function adminRoutes(app: FastifyInstance, { store, gc, pins, limits }: AppContext): void {
  const config = { access: 'admin', bodyMayBeEmpty: true } as const
  const ending = { ...config, work: 'ending' } as const // A collection resolves the locks that may be too many.

  const decodeGc = decoderOf(schemas.AdminGcBody, limits)
  app.post('/v1/admin/gc', { schema: { body: schemas.AdminGcBody }, config: ending }, async (request, reply) => {
    const { safePoint, lifeTimeMs } = await decodeGc(request)
    if (safePoint !== undefined && lifeTimeMs !== undefined)
      throw invalid('safe_point', 'give safe_point or life_time_ms, not both')
    if (safePoint !== undefined && safePoint > store.clock()) throw invalid('safe_point', 'safe_point is in the future')
    const run = await gc.run(safePoint ?? gc.wanted(lifeTimeMs))
    return answer(request, reply, {
      safePoint: run.safePoint,
      versionsRemoved: run.versionsRemoved,
      heldBackBy: run.heldBackBy,
    })
  })

  const decodeCompact = decoderOf(schemas.AdminCompactBody, limits)
  app.post('/v1/admin/compact', { schema: { body: schemas.AdminCompactBody }, config }, async (request, reply) => {
    const range = rangeOf(await decodeCompact(request), 'prefix')
    const diskBytesBefore = await store.diskBytes()
    await store.compact(range)
    return answer(request, reply, { diskBytesBefore, diskBytes: await store.diskBytes() })
  })

  const decodePin = decoderOf(schemas.PinBody, limits)
  app.post('/v1/admin/pins', { schema: { body: schemas.PinBody }, config }, async (request, reply) => {
    const { ts, ttlMs = PIN_TTL_MS_DEFAULT } = await decodePin(request)
    return answer(request, reply.status(201), shown(pins, await pins.create({ ts, ttlMs })))
  })

  app.get('/v1/admin/pins', { config: { access: 'admin' } }, (request, reply) =>
    answer(request, reply, { pins: pins.list().map((pin) => shown(pins, pin)) }),
  )

  const decodeRenew = decoderOf(schemas.PinRenewBody, limits)
  app.put('/v1/admin/pins/:pin', { schema: { body: schemas.PinRenewBody }, config: ending }, async (request, reply) => {
    const { ttlMs = PIN_TTL_MS_DEFAULT } = await decodeRenew(request)
    return answer(request, reply, shown(pins, await pins.renew(idOf(request), ttlMs)))
  })

  app.delete('/v1/admin/pins/:pin', { config: { access: 'admin', work: 'ending' } }, async (request, reply) => {
    await pins.remove(idOf(request))
    return answer(request, reply, {})
  })
}

function idOf(request: FastifyRequest): string {
  return (request.params as { readonly pin: string }).pin
}

function shown(pins: Pins, pin: Pin) {
  return { pin: pin.pin, ts: pin.ts, expiresAt: new Date(pins.expiresAtMs(pin)).toISOString() }
}
