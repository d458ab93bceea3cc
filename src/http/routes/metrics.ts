import type { FastifyInstance } from 'fastify'
import { exposition } from '../metrics/exposition.js'
import * as schemas from '../wire/schemas/status.js'
import type { AppContext } from './context.js'

/** Never shed. Names of observers are not for tokens that are bound to prefixes. */
const WATCHING = { access: 'read_all', work: 'watching' } as const

export function metricsRoute(app: FastifyInstance, context: AppContext): void {
  app.get('/metrics', { schema: schemas.metrics, config: WATCHING }, async (_request, reply) => {
    const { type, text } = await exposition(context)
    return reply.type(type).send(text)
  })
}
