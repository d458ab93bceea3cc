import type { FastifyInstance, FastifyRequest } from 'fastify'
import { OwnedNames } from '../../access/shares.js'
import type { PageRequest } from '../../bytes/sorted-map.js'
import type { ConsumerState } from '../../changes/rules/changes-api.js'
import { noSuchConsumer, WEBHOOK_CONSUMERS } from '../../changes/rules/consumer.js'
import { answer } from '../wire/answer.js'
import { mayUseConsumer } from '../wire/commit-effects.js'
import { decoderOf } from '../wire/decode.js'
import { answerPage, LISTING } from '../wire/list-page.js'
import { nameInPath } from '../wire/name.js'
import { givenRangeOf } from '../wire/range.js'
import * as schemas from '../wire/schemas/consumers.js'
import type { AppContext } from './context.js'

const CONSUMER = '/v1/consumers/:name'

/** Each call needs a token that covers the whole range of its consumer. Other consumers look as if they did not exist. */
export function consumerRoutes(app: FastifyInstance, { database, limits }: AppContext): void {
  const { consumers } = database.changes

  /** @throws KvError `not_found` */
  async function accessibleName(request: FastifyRequest): Promise<string> {
    const name = nameInPath(request, 'consumer')
    await consumers.refresh(name)
    const range = consumers.rangeOf(name)
    if (range === undefined || !mayUseConsumer(request.grant, name, range)) throw noSuchConsumer(name)
    return name
  }

  const owned = new OwnedNames(limits.consumersMax, 'consumers', (name) => consumers.rangeOf(name) !== undefined)
  const decodePut = decoderOf(schemas.put.body, limits)
  app.put(CONSUMER, { schema: schemas.put, config: { access: 'write' } }, async (request, reply) => {
    const name = nameInPath(request, 'consumer')
    if (name.startsWith(WEBHOOK_CONSUMERS)) request.grant.requireEveryKey()
    const { prefix, start, end, ...options } = await decodePut(request)
    const range = givenRangeOf({ prefix, start, end }, 'prefix')
    const put = () => consumers.put(name, { range, ...options })
    const { state, isNew } = await owned.making(name, request.grant.identity, put)
    return answer(request, reply.status(isNew ? 201 : 200), shown(state))
  })

  const listing = { schema: schemas.list, config: { access: 'read', query: LISTING } } as const
  app.get('/v1/consumers', listing, (request, reply) => {
    const read = (page: PageRequest) => consumers.page(page, (range) => request.grant.mayAccessRange(range))
    return answerPage(request, reply, 'consumers', database.store.cursorSecret, read, shown)
  })

  app.get(CONSUMER, { schema: schemas.get, config: { access: 'read' } }, async (request, reply) =>
    answer(request, reply, shown(consumers.state(await accessibleName(request)))),
  )

  const removing = { schema: schemas.remove, config: { access: 'write', bodyMayBeEmpty: true } } as const
  app.delete(CONSUMER, removing, async (request, reply) => {
    await consumers.remove(await accessibleName(request))
    return answer(request, reply, {})
  })

  const decodeAck = decoderOf(schemas.ack.body, limits)
  const acking = { schema: schemas.ack, config: { access: 'write', work: 'ending' } } as const
  app.post(`${CONSUMER}/ack`, acking, async (request, reply) => {
    const name = await accessibleName(request)
    const { ts } = await decodeAck(request)
    return answer(request, reply, shown(await consumers.ack(name, ts)))
  })

  const decodeReset = decoderOf(schemas.reset.body, limits)
  const resetting = { schema: schemas.reset, config: { access: 'write', bodyMayBeEmpty: true } } as const
  app.post(`${CONSUMER}/reset`, resetting, async (request, reply) => {
    const name = await accessibleName(request)
    const { sinceTs } = await decodeReset(request)
    return answer(request, reply, shown(await consumers.reset(name, sinceTs)))
  })
}

function shown({ name, range, position, holdMs, lagMs, isLost }: ConsumerState) {
  return { name, ...range, position, holdMs, lagMs: Math.round(lagMs), isLost }
}
