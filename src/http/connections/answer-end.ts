import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { KvError } from '../../errors/kv-error.js'

/** Calls back once a message is on its way as a whole, or has come, or its client has gone, be it before now. */
export function whenOver(message: IncomingMessage | ServerResponse, over: () => void): void {
  if (message.destroyed) over()
  else message.once('close', over)
}

/** Makes a signal, once, that is aborted when the client goes away before it is answered, be it before now. */
export function hangUp(answer: ServerResponse): () => AbortSignal {
  let signal: AbortSignal | undefined
  return () => {
    signal ??= hangUpSignal(answer)
    return signal
  }
}

export function hangUpSignal(answer: ServerResponse): AbortSignal {
  const abort = new AbortController()
  whenOver(answer, () => {
    if (!answer.writableEnded) abort.abort(new KvError('txn_not_found', 'the client has gone', {}))
  })
  return abort.signal
}

/**
 * When a connection closes, Node tells the answer that has it. Those behind that one, of requests that were sent without
 * waiting, would never hear of it, and hold on to what they hold: they are told here.
 */
export function closePipelined(server: Server): void {
  const behind = new WeakMap<Socket, Set<ServerResponse>>()
  server.on('request', ({ socket }, answer) => {
    if (answer.socket !== null) return
    const waiting = behind.get(socket) ?? new Set()
    if (!behind.has(socket)) {
      behind.set(socket, waiting)
      socket.once('close', () => {
        for (const one of waiting) one.destroy().emit('close')
      })
    }
    waiting.add(answer)
    answer.once('socket', () => waiting.delete(answer))
  })
}
