import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { KvError } from '../../errors/kv-error.js'
import type { SignalSource } from '../../event-loop/late-signal.js'

/** Calls `over` once: when the message is sent or received as a whole, when its client hangs up, or now if that is past. */
export function whenOver(message: IncomingMessage | ServerResponse, over: () => void): void {
  if (message.destroyed) over()
  else message.once('close', over)
}

/** Aborts when the client hangs up before its answer has ended, or its token has gone. Made at the first call, as most requests never need it. */
export function hangUp(answer: ServerResponse): SignalSource {
  let signal: AbortSignal | undefined
  const make = (): AbortSignal => {
    signal ??= hangUpSignal(answer)
    return signal
  }
  const { progress, letIn } = answer.req
  return Object.assign(make, { stages: progress?.stages, require: letIn && (() => letIn.require()) })
}

export function hangUpSignal(answer: ServerResponse): AbortSignal {
  const abort = new AbortController()
  abortOnHangUp(abort, answer)
  return abort.signal
}

export function abortOnHangUp(abort: AbortController, answer: ServerResponse): void {
  const unfollow = answer.req.letIn?.follow((error) => abort.abort(error))
  whenOver(answer, () => {
    unfollow?.()
    if (!answer.writableEnded) abort.abort(clientGone())
  })
}

/** Ends the waits of a request that nobody waits for. No client sees it. */
export function clientGone(): KvError {
  return new KvError('txn_not_found', 'the client has gone', {})
}

/**
 * Emits `close` on pipelined answers when their connection closes. Node emits it only on the answer that is being sent; the
 * answers queued behind it would keep their locks, leases and counts for ever.
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
