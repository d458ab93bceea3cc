import type { FastifyInstance, FastifyRequest } from 'fastify'
import { requireValue } from '../../bytes/byte-limits.js'
import type { Limits } from '../../limits.js'
import type { Traffic } from './traffic.js'

/** Registers routes whose bodies are values. Their content type is ignored, even a malformed one; DELETE ignores its body. */
export function rawBodies(
  app: FastifyInstance,
  { limits, traffic }: { readonly limits: Limits; readonly traffic: Traffic },
  routes: (scope: FastifyInstance) => void,
): void {
  app.register(async (scope) => {
    scope.addHook('onRequest', (request, _reply, done) => {
      request.headers['content-type'] = 'application/octet-stream'
      done()
    })
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', (request, _payload, done) => traffic.readBody(request, limits.valueBytesMax, done))
    routes(scope)
  })
}

export function rawValueOf(request: FastifyRequest, limits: Limits): Uint8Array {
  const value = request.body instanceof Uint8Array ? request.body : Buffer.alloc(0)
  requireValue(value, 'body', limits.valueBytesMax)
  return value
}
