import type { FastifyInstance } from 'fastify'
import type { Logger } from '../../logger.js'

/**
 * Logs one line per request at its start and one at its end, at level `debug`. The lines name the route and not the URL, which
 * holds keys, transaction ids and cursors. fastify's own logger would write URLs, in its warnings too, so it is off.
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
