import type { FastifyInstance } from 'fastify'
import { type HotKey, SAMPLED_EVERY } from '../load/hot-keys.js'
import type { KeptRequest } from '../load/slow-requests.js'
import { answer } from '../wire/answer.js'
import * as schemas from '../wire/schemas/load.js'
import type { AppContext } from './context.js'

/** Keys of everybody's requests must not be shown to tokens with prefixes. Never shed: it is asked when a server is slow. */
const WATCHING = { access: 'read_all', work: 'watching' } as const
const HOT_KEYS_SHOWN = 20

export function loadRoute(app: FastifyInstance, { slow, hotKeys }: AppContext): void {
  app.get('/v1/admin/load', { schema: schemas.load, config: WATCHING }, (request, reply) =>
    answer(request, reply, {
      slowMs: Math.ceil(slow?.slowMs ?? 0),
      slow: slow?.kept.map(shownRequest) ?? [],
      sampledEvery: SAMPLED_EVERY,
      hotKeys: hotKeys.list(HOT_KEYS_SHOWN).map(shownKey),
    }),
  )
}

function shownRequest({ reqId, method, route, status, beganAtMs, times, keys, range, isCut }: KeptRequest) {
  const startedAt = new Date(beganAtMs).toISOString()
  return { requestId: reqId, method, route, status, startedAt, ...times, keys, ...range, isCut }
}

function shownKey({ key, readsPerSecond, writesPerSecond }: HotKey) {
  return {
    key,
    readsPerMinute: Math.round(60 * readsPerSecond),
    writesPerMinute: Math.round(60 * writesPerSecond),
  }
}
