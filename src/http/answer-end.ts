import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/** Calls back once the answer is on its way as a whole, or its client has gone, be it before now. */
export function whenOver(answer: ServerResponse, over: () => void): void {
  if (answer.destroyed) over()
  else answer.once('close', over)
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
