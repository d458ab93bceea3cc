import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import type { FastifyInstance } from 'fastify'
import { isWithin } from './tls.js'

/**
 * While the server closes, requests in flight are answered with `connection: close`, and connections that never carried a
 * request are destroyed.
 * @returns a function to call with a connection whose first request did not come through node:http.
 */
export function closeConnections(app: FastifyInstance): (socket: Socket) => void {
  let isClosing = false
  const unused = unusedConnections(app.server)
  app.addHook('preClose', async () => {
    isClosing = true
    for (const socket of unused) socket.destroy()
  })
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (isClosing) reply.header('connection', 'close')
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
