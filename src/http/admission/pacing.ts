import type { IncomingMessage, Server, ServerResponse } from 'node:http'

type Request = readonly [request: IncomingMessage, response: ServerResponse]

/** Requests that are begun in one turn of the event loop, and in one that took a connection: more of them may be waiting. */
const AT_A_TIME = 64
const AT_A_TIME_AT_THE_DOOR = 4
/** So many are begun before anybody looks for the turn's end, which a request alone would pay for. */
const LOOK_AFTER = AT_A_TIME_AT_THE_DOOR
/** Begun whatever waits. */
const LIVE = '/livez'

/**
 * Begins some requests a turn of the event loop, and lets the others wait for the next turns. Node takes one new connection
 * a turn (libuv since 1.45): with a thousand requests in each, a probe would stand at the door for seconds.
 * @param waitingMax above it they are begun at once, so that admission sees them.
 */
export function paceRequests(server: Server, waitingMax: number): void {
  const listeners = server.listeners('request') as ((...request: Request) => void)[]
  server.removeAllListeners('request')
  let begun = 0
  let atATime = AT_A_TIME
  let waiting: Request[] = []

  const begin = (request: IncomingMessage, response: ServerResponse): void => {
    if (!request.destroyed) for (const listener of listeners) listener.call(server, request, response)
  }
  const nextTurn = (): void => {
    const now = waiting.length > atATime ? waiting.splice(0, atATime) : waiting
    if (now === waiting) waiting = []
    atATime = AT_A_TIME
    begun = now.length
    if (begun >= LOOK_AFTER || waiting.length > 0) setImmediate(nextTurn)
    for (const request of now) begin(...request)
  }

  server.on('connection', () => {
    atATime = AT_A_TIME_AT_THE_DOOR
  })
  server.on('request', (request, response) => {
    const isFull = begun >= atATime || waiting.length > 0
    if (isFull && request.url !== LIVE && waiting.length < waitingMax) {
      waiting.push([request, response])
      return
    }
    if (++begun === LOOK_AFTER) setImmediate(nextTurn)
    begin(request, response)
  })
}
