import type { FastifyInstance } from 'fastify'
import { KvError } from '../../errors/kv-error.js'
import { SIGNED_BYTES_MAX } from '../../oracle/signed-ask.js'
import type { AppContext } from './context.js'

/**
 * What servers of one table ask each other, on the port of clients. No token opens it: the request is signed with a secret that
 * stands in the table. It is never shed, because all other requests wait for timestamps.
 */
export function timestampRoute(app: FastifyInstance, { member }: AppContext): void {
  if (member === undefined) return
  app.register(async (scope) => {
    scope.removeAllContentTypeParsers()
    const parse = { parseAs: 'buffer', bodyLimit: SIGNED_BYTES_MAX } as const
    scope.addContentTypeParser('application/octet-stream', parse, (_request, body, done) => done(null, body))
    const config = { access: 'open', work: 'watching', isInternal: true } as const
    scope.post('/v1/internal/timestamps', { config }, async (request, reply) => {
      const body = request.body
      const answer = body instanceof Uint8Array ? await member.timestamps(body) : undefined
      if (answer === undefined)
        throw new KvError('forbidden', 'only a server of the same table may ask this', { field: 'body' })
      return reply.header('content-type', 'application/octet-stream').send(Buffer.from(answer))
    })
  })
}
