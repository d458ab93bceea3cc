import type { IncomingMessage } from 'node:http'
import { invalid } from '../../errors/kv-error.js'
import { whenOver } from './answer-end.js'

const streaming = new WeakSet<object>()

/**
 * Exempts a request from the request timeout as long as some of its bytes arrive every `stalledMsMax`.
 * @returns its body. Each piece is taken only while the request's token has its rights.
 */
export function receiveStream(request: IncomingMessage, stalledMsMax: number): AsyncGenerator<Buffer, void> {
  const { socket } = request
  const taken = { bytes: 0 }
  let bytesBefore = -1
  const check = setInterval(() => {
    const isStalled = taken.bytes === bytesBefore && request.readableLength === 0 && !request.complete
    if (isStalled) request.destroy()
    bytesBefore = taken.bytes
  }, stalledMsMax)
  check.unref()
  streaming.add(socket).add(request)
  whenOver(request, () => {
    clearInterval(check)
    streaming.delete(socket)
    streaming.delete(request)
  })
  return piecesOf(request, taken)
}

async function* piecesOf(request: IncomingMessage, taken: { bytes: number }): AsyncGenerator<Buffer, void> {
  // The answer needs the connection.
  for await (const piece of request.iterator({ destroyOnReturn: false })) {
    request.letIn?.require()
    taken.bytes += piece.length
    yield piece
  }
  if (request.aborted) throw invalid('body', 'the connection broke') // The body of HTTP/2 only ends then.
}

/** @param of a connection of HTTP/1.1, or a request of HTTP/2. */
export function isStreaming(of: object): boolean {
  return streaming.has(of)
}
