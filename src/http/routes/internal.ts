import type { FastifyInstance } from 'fastify'
import { KvError } from '../../errors/kv-error.js'
import { internalPath } from '../../oracle/ask-over-http.js'
import type { Answering } from '../../oracle/signed-ask.js'
import type { AppContext } from './context.js'

/**
 * What servers of one table ask each other, on the port of clients. No token opens it: a request is signed with a secret that
 * stands in the table. It is never shed, because all other requests wait for what is asked.
 */
export function internalRoutes(app: FastifyInstance, { member }: AppContext): void {
  for (const each of member?.answers ?? []) app.register(async (scope) => internalRoute(scope, each))
}

function internalRoute(scope: FastifyInstance, { name, askBytesMax, answer }: Answering): void {
  scope.removeAllContentTypeParsers()
  const parse = { parseAs: 'buffer', bodyLimit: askBytesMax } as const
  scope.addContentTypeParser('application/octet-stream', parse, (_request, body, done) => done(null, body))
  const config = { access: 'open', work: 'watching', isInternal: true } as const
  scope.post(internalPath(name), { config }, async (request, reply) => {
    const body = request.body
    const answered = body instanceof Uint8Array ? await answer(body) : undefined
    if (answered === undefined)
      throw new KvError('forbidden', 'only a server of the same table may ask this', { field: 'body' })
    return reply.header('content-type', 'application/octet-stream').send(Buffer.from(answered))
  })
}
