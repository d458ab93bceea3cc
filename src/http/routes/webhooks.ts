import type { FastifyInstance } from 'fastify'
import type { PageRequest } from '../../bytes/sorted-map.js'
import { KvError } from '../../errors/kv-error.js'
import type { WebhookState, Webhooks } from '../../webhooks/webhooks.js'
import { answer } from '../wire/answer.js'
import { decoderOf } from '../wire/decode.js'
import { answerPage, LISTING } from '../wire/list-page.js'
import { nameInPath } from '../wire/name.js'
import { givenRangeOf } from '../wire/range.js'
import * as schemas from '../wire/schemas/webhooks.js'
import type { AppContext } from './context.js'

const WEBHOOK = '/v1/webhooks/:name'

/** For administrators alone, because the server sends requests on their behalf. */
export function webhookRoutes(app: FastifyInstance, context: AppContext): void {
  const { database, limits } = context

  /** @throws KvError `forbidden` */
  function sending(): Webhooks {
    if (context.webhooks !== undefined) return context.webhooks
    throw new KvError('forbidden', 'this server sends no webhooks: it was started without --webhook-targets', {})
  }

  const decodePut = decoderOf(schemas.put.body, limits)
  app.put(WEBHOOK, { schema: schemas.put, config: { access: 'admin' } }, async (request, reply) => {
    const name = nameInPath(request, 'webhook')
    const webhooks = sending()
    const { prefix, start, end, ...options } = await decodePut(request)
    const range = givenRangeOf({ prefix, start, end }, 'prefix')
    const { state, isNew, secret } = await webhooks.put(name, { range, ...options })
    return answer(request, reply.status(isNew ? 201 : 200), { ...shown(state), secret })
  })

  const listing = { schema: schemas.list, config: { access: 'read_all', query: LISTING } } as const
  app.get('/v1/webhooks', listing, (request, reply) => {
    const webhooks = sending()
    const read = (page: PageRequest) => webhooks.page(page)
    return answerPage(request, reply, 'webhooks', database.store.cursorSecret, read, shown)
  })

  app.get(WEBHOOK, { schema: schemas.get, config: { access: 'read_all' } }, async (request, reply) => {
    const name = nameInPath(request, 'webhook')
    return answer(request, reply, shown(await sending().get(name)))
  })

  const changing = { access: 'admin', bodyMayBeEmpty: true } as const
  app.delete(WEBHOOK, { schema: schemas.remove, config: changing }, async (request, reply) => {
    const name = nameInPath(request, 'webhook')
    await sending().remove(name)
    return answer(request, reply, {})
  })

  app.post(`${WEBHOOK}/retry`, { schema: schemas.change, config: changing }, async (request, reply) => {
    const name = nameInPath(request, 'webhook')
    return answer(request, reply, shown(await sending().retry(name)))
  })

  app.post(`${WEBHOOK}/skip`, { schema: schemas.change, config: changing }, async (request, reply) => {
    const name = nameInPath(request, 'webhook')
    return answer(request, reply, shown(await sending().skip(name)))
  })

  const decodeReset = decoderOf(schemas.reset.body, limits)
  app.post(`${WEBHOOK}/reset`, { schema: schemas.reset, config: changing }, async (request, reply) => {
    const name = nameInPath(request, 'webhook')
    const { sinceTs } = await decodeReset(request)
    return answer(request, reply, shown(await sending().reset(name, sinceTs)))
  })
}

/** Without the secret. */
function shown({ webhook, state, consumer, counts }: WebhookState) {
  const { name, url, range, batch, timeoutMs, maxAttempts, backoffMs, backoffMaxMs, failure } = webhook
  const { attempts = 0, error, upTo: failingUpTo, nextMs, isParked } = failure ?? {}
  const at = nextMs === undefined ? undefined : new Date(nextMs).toISOString()
  return {
    name,
    url,
    ...range,
    batch,
    timeoutMs,
    maxAttempts,
    backoffMs,
    backoffMaxMs,
    state,
    position: consumer?.position,
    holdMs: consumer?.holdMs,
    lagMs: consumer && Math.round(consumer.lagMs),
    attempts,
    error,
    failingUpTo,
    nextAttemptAt: isParked === false ? at : undefined,
    parkedAt: isParked === true ? at : undefined,
    ...counts,
  }
}
