import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { whenOver } from './answer-end.js'

const streaming = new WeakSet<Socket>()

/**
 * Exempts a request from the request timeout as long as some of its bytes arrive every `stalledMsMax`.
 * @returns its body. Each piece is taken only while the request's token has its rights.
 */
export function receiveStream(request: IncomingMessage, stalledMsMax: number): AsyncGenerator<Buffer, void> {
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
  return piecesOf(request)
}

async function* piecesOf(request: IncomingMessage): AsyncGenerator<Buffer, void> {
  // The answer needs the connection.
  for await (const piece of request.iterator({ destroyOnReturn: false })) {
    request.letIn?.require()
    yield piece
  }
}

export function isStreaming(socket: Socket): boolean {
  return streaming.has(socket)
}
