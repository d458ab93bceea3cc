import type { FastifyInstance } from 'fastify'
import type { Logger } from 'pino'

/**
 * From `debug` on, a line when a request comes and one when it is over. The route stands for the URL, in which there are
 * keys, ids of transactions and cursors. fastify's own log would have the URL, here and in its warnings, so it gets none.
 */
export function logRequests(app: FastifyInstance, log: Logger): void {
  if (!log.isLevelEnabled('debug')) return
  app.addHook('onRequest', (request, _reply, done) => {
    const { id: reqId, method, ip: remoteAddress, routeOptions } = request
    log.debug({ reqId, method, route: routeOptions.url, remoteAddress }, 'incoming request')
    done()
  })
  app.addHook('onResponse', (request, reply, done) => {
    const { statusCode, elapsedTime: responseTime } = reply
    log.debug({ reqId: request.id, statusCode, responseTime }, 'request completed')
    done()
  })
}
