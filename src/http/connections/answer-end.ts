import type { IncomingMessage, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import { KvError } from '../../errors/kv-error.js'
import type { SignalSource } from '../../event-loop/lazy-signal.js'
import { LOCK_WAIT_MS_DEFAULT } from '../../limits.js'

/** Calls `over` once: when the message was sent or received completely, when its client hangs up, or now if that has happened. */
export function whenOver(message: IncomingMessage | ServerResponse, over: () => void): void {
  if (message.destroyed) over()
  else message.once('close', over)
}

/**
 * Aborts when the client hangs up before its answer has ended, or loses its token. Created at the first call, as most requests
 * never need it.
 */
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
  let timer: NodeJS.Timeout | undefined
  // A client that has gone cannot be told from one that has only ended its side, until a write fails. Most have gone. The others
  // are answered, but long waits end early.
  const forget = whenInputEnds(answer.req.socket, () => {
    timer = setTimeout(() => abort.abort(clientEnded()), LOCK_WAIT_MS_DEFAULT).unref()
  })
  whenOver(answer, () => {
    unfollow?.()
    clearTimeout(timer)
    forget()
    if (!answer.writableEnded) abort.abort(clientGone())
  })
}

const endings = new WeakMap<Socket, Set<() => void>>()

/**
 * Calls `then` when the client has ended its side of the connection, or now if it has. @returns a function that removes the
 * listener.
 */
export function whenInputEnds(socket: unknown, then: () => void): () => void {
  if (!(socket instanceof Socket)) return () => {} // A request by `inject` has none, one of HTTP/2 none of its own.
  if (socket.readableEnded) {
    then()
    return () => {}
  }
  let all = endings.get(socket)
  if (all === undefined) {
    const waiting = new Set<() => void>() // One listener for all: as many as there are pipelined requests would look like a leak to Node.
    all = waiting
    endings.set(socket, waiting)
    socket.once('end', () => {
      for (const one of waiting) one()
    })
  }
  all.add(then)
  return () => all.delete(then)
}

function clientEnded(): KvError {
  const detail = `the client has ended its side of the connection, and is waited for no longer than ${LOCK_WAIT_MS_DEFAULT} ms`
  return new KvError('deadline_exceeded', detail, {})
}

export function clientGone(): KvError {
  return new KvError('txn_not_found', 'the client has gone', {})
}
