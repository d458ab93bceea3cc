import type { IncomingMessage, Server, ServerResponse } from 'node:http'

type Request = [request: IncomingMessage, response: ServerResponse]

/** Requests started per turn of the event loop. */
const PER_TURN = 64
/** Requests started in a turn that accepted a connection: fewer, because more connections may be waiting. */
const PER_ACCEPTING_TURN = 4
/** `#nextTurn` is scheduled from this many requests on, so that a single request does not pay for it. */
const FREE_PER_TURN = PER_ACCEPTING_TURN
/** Requests for this path never wait. */
const LIVE = '/livez'

/**
 * Starts a bounded number of requests per turn of the event loop; the others wait for later turns. Node accepts one new
 * connection per turn (libuv since 1.45): with a thousand requests per turn, a probe on a new connection would wait for seconds.
 */
export class Pacing {
  readonly #waitingMax: number
  #started = 0
  #perTurn = PER_TURN
  #waiting: (() => void)[] = []

  /** @param waitingMax requests beyond this many are started at once, so that admission sees them. */
  constructor(waitingMax: number) {
    this.#waitingMax = waitingMax
  }

  /** Counts a request if it may start in this turn. Otherwise it must `wait`. */
  mayStart(): boolean {
    const isFull = this.#started >= this.#perTurn || this.#waiting.length > 0
    if (isFull && this.#waiting.length < this.#waitingMax) return false
    if (++this.#started === FREE_PER_TURN) setImmediate(this.#nextTurn)
    return true
  }

  /** Calls `start` in a later turn, in the order of these calls. */
  wait(start: () => void): void {
    this.#waiting.push(start)
  }

  accepted(): void {
    this.#perTurn = PER_ACCEPTING_TURN
  }

  readonly #nextTurn = (): void => {
    const perTurn = this.#perTurn
    const now = this.#waiting.length > perTurn ? this.#waiting.splice(0, perTurn) : this.#waiting
    if (now === this.#waiting) this.#waiting = []
    this.#perTurn = PER_TURN
    this.#started = now.length
    if (this.#started >= FREE_PER_TURN || this.#waiting.length > 0) setImmediate(this.#nextTurn)
    for (const start of now) start()
  }
}

export function paceRequests(server: Server, pacing: Pacing): void {
  const listeners = server.listeners('request') as ((...request: Request) => void)[]
  server.removeAllListeners('request')
  const start = (...request: Request): void => {
    if (!request[0].destroyed) for (const listener of listeners) listener.apply(server, request)
  }
  server.on('connection', () => pacing.accepted())
  server.on('request', (request, response) => {
    if (request.url === LIVE || pacing.mayStart()) start(request, response)
    else {
      request.arrivedMs = performance.now()
      pacing.wait(() => start(request, response))
    }
  })
}
