import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { FastifyInstance } from 'fastify'
import { hasMoreBehind } from './pipelining.js'
import { isWithin } from './tls.js'

/**
 * While the server closes, the last request in flight of a connection is answered with `connection: close`, and connections
 * without any byte of a request are destroyed.
 * @returns a function to call with a connection whose first bytes did not come through node:http.
 */
export function closeConnections(app: FastifyInstance): (socket: Socket) => void {
  let isClosing = false
  const unused = unusedConnections(app.server)
  const closeIdle = app.server.closeIdleConnections.bind(app.server)
  // Deferred: until the turn ends, Node takes a connection for idle whose answer has ended, even with others still to send.
  app.server.closeIdleConnections = () => void setImmediate(closeIdle)
  app.addHook('preClose', async () => {
    isClosing = true
    for (const socket of unused) if (!hasBegun(socket)) socket.destroy()
  })
  // Counts bytes of the first request. Until the handshake is over, a TLS connection has received none.
  const isTls = 'setSecureContext' in app.server
  const hasBegun = (socket: Socket): boolean => socket.bytesRead > 0 && (!isTls || socket instanceof TLSSocket)
  app.addHook('onSend', ({ raw }, reply, payload, done) => {
    if (raw.httpVersionMajor === 2)
      reply.removeHeader('connection') // HTTP/2 has none; fastify sets it where it refuses a media type.
    else if (isClosing && hasMoreBehind(reply.raw))
      reply.raw.removeHeader('connection') // fastify has set `close`.
    else if (isClosing) reply.header('connection', 'close')
    done(null, payload)
  })
  return (socket) => unused.delete(socket)
}

/** Node counts connections that never carried a request neither as idle nor as busy, and would wait for them on close. */
function unusedConnections(server: Server): Set<Socket> {
  const unused = new Set<Socket>()
  const track = (socket: Socket): void => {
    unused.add(socket)
    socket.once('close', () => unused.delete(socket))
  }
  server.on('connection', track)
  server.on('secureConnection', (secure: TLSSocket) => {
    for (const raw of unused) if (isWithin(secure, raw)) unused.delete(raw)
    track(secure)
  })
  server.on('request', (request) => unused.delete(request.socket))
  return unused
}
