import type { FastifyInstance, FastifyReply } from 'fastify'
import type { HttpMeters } from '../../meters/http-meters.js'
import type { HotKeys } from '../load/hot-keys.js'
import { touchedByRequest } from '../load/touched-keys.js'

const STREAMS = /^(text\/event-stream|application\/x-ndjson|application\/octet-stream)/

export function measureRequests(app: FastifyInstance, meters: HttpMeters, hotKeys: HotKeys): void {
  const unrouted = meters.of('any', 'none')
  app.addHook('onResponse', (request, reply, done) => {
    const { url } = request.routeOptions
    const meter = request.is404 || url === undefined ? unrouted : meters.of(request.method, url)
    meter.answered(reply.statusCode, reply.elapsedTime / 1000, isStream(reply))
    if (hotKeys.isNext()) hotKeys.note(touchedByRequest(request))
    done()
  })
}

/** A value of a key has the content type of a backup, but also a length. */
function isStream(reply: FastifyReply): boolean {
  return reply.getHeader('content-length') === undefined && STREAMS.test(String(reply.getHeader('content-type')))
}
