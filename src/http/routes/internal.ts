import type { FastifyInstance } from 'fastify'
import { KvError } from '../../errors/kv-error.js'
import { internalPath } from '../../oracle/ask-over-http.js'
import type { Answering } from '../../oracle/signed-ask.js'
import type { Traffic } from '../admission/traffic.js'
import type { AppContext } from './context.js'

/**
 * The calls between servers of one table, on the port of clients. Tokens do not authorize them: each request is signed with a
 * secret from the table. They are never shed, because all other requests wait for their answers.
 */
export function internalRoutes(app: FastifyInstance, { member, traffic }: AppContext): void {
  for (const each of member?.answers ?? []) app.register(async (scope) => internalRoute(scope, each, traffic))
}

function internalRoute(scope: FastifyInstance, { name, askBytesMax, answer }: Answering, traffic: Traffic): void {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('application/octet-stream', (request, _payload, done) =>
    traffic.readBody(request, askBytesMax, done),
  )
  const config = { access: 'open', work: 'watching', isInternal: true } as const
  scope.post(internalPath(name), { config }, async (request, reply) => {
    const body = request.body
    const answered = body instanceof Uint8Array ? await answer(body) : undefined
    if (answered === undefined)
      throw new KvError('forbidden', 'only a server of the same table may ask this', { field: 'body' })
    return reply.header('content-type', 'application/octet-stream').send(Buffer.from(answered))
  })
}
