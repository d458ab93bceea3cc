import { promisify } from 'node:util'
import type { FastifyInstance } from 'fastify'
import { type Exposition, exposition } from '../metrics/exposition.js'
import * as schemas from '../wire/schemas/status.js'
import type { AppContext } from './context.js'

/** Never shed. Names of observers must not be shown to tokens with prefixes. */
const WATCHING = { access: 'read_all', work: 'watching' } as const

export function metricsRoute(app: FastifyInstance, context: AppContext): void {
  const connections = promisify(app.server.getConnections.bind(app.server))
  /** Shared by concurrent scrapes. */
  let pending: Promise<Exposition> | undefined
  const scrape = (): Promise<Exposition> => {
    pending ??= connections()
      .then((count) => exposition(context, count))
      .finally(() => {
        pending = undefined
      })
    return pending
  }
  app.get('/metrics', { schema: schemas.metrics, config: WATCHING }, async (_request, reply) => {
    const { type, text } = await scrape()
    return reply.type(type).send(text)
  })
}
