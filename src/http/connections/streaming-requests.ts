import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { whenOver } from './answer-end.js'

const streaming = new WeakSet<Socket>()

/** Exempts a request from the request timeout, as long as some bytes of it arrive every `stalledMsMax`. */
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
