import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { Limits } from '../../limits.js'
import { whenOver } from '../connections/answer-end.js'

/** How often Node looks for requests that take too long to arrive. */
const CHECKS_PER_TIMEOUT = 4
const CHECK_MS_MAX = 5000

/** What bounds requests before there are any: options of fastify, and through it of Node's server. */
export function receivingOptions({ headerBytesMax, headerMsMax, requestMsMax, idleMsMax }: Limits) {
  // Node takes no time for the headers that is above the one for the request.
  const headersTimeout = requestMsMax === 0 ? headerMsMax : Math.min(headerMsMax, requestMsMax)
  return {
    http: {
      maxHeaderSize: headerBytesMax,
      requireHostHeader: false, // Node's own answer would lack the headers that keep browsers safe: see `withoutHost`.
      headersTimeout,
      requestTimeout: requestMsMax,
      connectionsCheckingInterval: Math.min(CHECK_MS_MAX, Math.ceil(headersTimeout / CHECKS_PER_TIMEOUT)),
    },
    requestTimeout: requestMsMax,
    keepAliveTimeout: idleMsMax,
  }
}

const streaming = new WeakSet<Socket>()

/** Such a request may take as long as it likes to arrive, as long as something arrives. */
export function receiveStream(request: IncomingMessage, stalledMsMax: number): void {
  const { socket } = request
  let { bytesRead } = socket
  const check = setInterval(() => {
    const isStalled = socket.bytesRead === bytesRead && request.readableLength === 0 && !request.complete
    if (isStalled) request.destroy()
    bytesRead = socket.bytesRead
  }, stalledMsMax)
  check.unref()
  streaming.add(socket)
  whenOver(request, () => {
    clearInterval(check)
    streaming.delete(socket)
  })
}

export function isStreaming(socket: Socket): boolean {
  return streaming.has(socket)
}
