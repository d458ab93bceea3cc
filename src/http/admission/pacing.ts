import type { IncomingMessage, Server, ServerResponse } from 'node:http'

type Request = readonly [request: IncomingMessage, response: ServerResponse]

/** Requests started per turn of the event loop. */
const PER_TURN = 64
/** Requests started in a turn that accepted a connection: fewer, because more connections may be waiting. */
const PER_ACCEPTING_TURN = 4
/** `nextTurn` is scheduled from this many on, so that a single request does not pay for it. */
const FREE_PER_TURN = PER_ACCEPTING_TURN
/** Requests for this path never wait. */
const LIVE = '/livez'

/**
 * Starts a bounded number of requests per turn of the event loop; the others wait for later turns. Node accepts one new
 * connection per turn (libuv since 1.45): with a thousand requests per turn, a probe on a new connection would wait for seconds.
 * @param waitingMax requests beyond this many are started at once, so that admission sees them.
 */
export function paceRequests(server: Server, waitingMax: number): void {
  const listeners = server.listeners('request') as ((...request: Request) => void)[]
  server.removeAllListeners('request')
  let started = 0
  let perTurn = PER_TURN
  let waiting: Request[] = []

  const start = (request: IncomingMessage, response: ServerResponse): void => {
    if (!request.destroyed) for (const listener of listeners) listener.call(server, request, response)
  }
  const nextTurn = (): void => {
    const now = waiting.length > perTurn ? waiting.splice(0, perTurn) : waiting
    if (now === waiting) waiting = []
    perTurn = PER_TURN
    started = now.length
    if (started >= FREE_PER_TURN || waiting.length > 0) setImmediate(nextTurn)
    for (const request of now) start(...request)
  }

  server.on('connection', () => {
    perTurn = PER_ACCEPTING_TURN
  })
  server.on('request', (request, response) => {
    const isFull = started >= perTurn || waiting.length > 0
    if (isFull && request.url !== LIVE && waiting.length < waitingMax) {
      waiting.push([request, response])
      return
    }
    if (++started === FREE_PER_TURN) setImmediate(nextTurn)
    start(request, response)
  })
}
