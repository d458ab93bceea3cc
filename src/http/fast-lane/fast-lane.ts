import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import type { FastifyInstance } from 'fastify'
import { Grant } from '../../access/grant.js'
import type { Database } from '../../database/database.js'
import type { Limits } from '../../limits.js'
import type { HttpMeters } from '../../meters/http-meters.js'
import type { Pacing } from '../admission/pacing.js'
import type { TokensInForce } from '../admission/tokens-in-force.js'
import type { Traffic } from '../admission/traffic.js'
import type { BrowserGuard } from '../connections/browser-safety.js'
import type { Http2Connections } from '../connections/http2.js'
import type { LetIn } from '../connections/let-in.js'
import { listenerOfNode } from '../connections/tls.js'
import type { RequestTraces } from '../connections/traced-requests.js'
import type { HotKeys } from '../load/hot-keys.js'
import type { SlowRequests } from '../load/slow-requests.js'
import type { Report } from '../wire/error-handler.js'
import { type Ask, asker } from './asked.js'
import type { Call } from './call.js'
import type { HeaderBlock } from './header-block.js'
import type { KvCalls } from './kv-calls.js'
import { type Lane, LaneConnection } from './lane-connection.js'
import { runner } from './run-call.js'
import { logSlowCall } from './slow-call.js'
import { touchedByCall } from './touched-by-call.js'
import { traceCall } from './traced-call.js'

export interface FastLaneOptions {
  readonly database: Database
  readonly limits: Limits
  readonly traffic: Traffic
  readonly pacing: Pacing
  readonly report: Report
  readonly meters: HttpMeters
  readonly slow: SlowRequests | undefined
  readonly hotKeys: HotKeys
  readonly traces: RequestTraces | undefined
  readonly tokens: TokensInForce | undefined
  readonly browserGuard: BrowserGuard | undefined
  /** Called when the first bytes of a connection arrive. */
  readonly used: (socket: Socket) => void
  readonly http2: Http2Connections
  /** Absent: KV Connect is not served. */
  readonly kvCalls: KvCalls | undefined
  /** Otherwise node:http serves all of HTTP/1.1. */
  readonly isOpen: boolean
}

const TICK_MS_MAX = 1000
const TICKS_PER_TIMEOUT = 4

/**
 * Reads the first bytes of each connection, which tell HTTP/2 from HTTP/1.1. Then serves GET, PUT and DELETE of `/v1/kv/{key}`,
 * `POST /v1/txn`, PUT of `/v1/leases/{name}`, and reads and writes of KV Connect without node:http and fastify, which take more
 * time than the requests themselves. At its first request of another kind a connection is handed to node:http, with the bytes of
 * that request.
 * @param app must not be ready yet, and must be a server of its own.
 */
export function openFastLane(app: FastifyInstance, isTls: boolean, options: FastLaneOptions): void {
  const { server } = app
  const { event, listener, serve } = listenerOfNode(server, isTls)
  server.removeListener(event, listener)
  const lane = new OpenLane(app, isTls, options, serve)
  server.on(event, (socket: Socket) => lane.accept(socket))
  app.addHook('preClose', async () => lane.close())
  const closeAll = server.closeAllConnections.bind(server)
  // Node knows only the connections of its own parser.
  server.closeAllConnections = () => {
    lane.destroy()
    options.http2.destroy()
    closeAll()
  }
}

class OpenLane implements Lane {
  readonly isOpen: boolean
  readonly looksForHttp2: boolean
  readonly limits: Limits
  readonly answers: Lane['answers']
  readonly browserGuard: BrowserGuard | undefined
  readonly isTraced: boolean
  readonly used: Lane['used']
  readonly serveByNode: Lane['serveByNode']
  readonly #app: FastifyInstance
  #ask: Ask | undefined
  #isClosing = false
  readonly #options: FastLaneOptions
  readonly #run: (call: Call) => void
  readonly #connections = new Set<LaneConnection>()
  readonly #ticking: NodeJS.Timeout
  readonly #keepAlive: string
  #date = ''
  #dateEndMs = 0

  constructor(app: FastifyInstance, isTls: boolean, options: FastLaneOptions, serveByNode: Lane['serveByNode']) {
    const { limits, database, browserGuard, traces, used, isOpen } = options
    this.#app = app
    this.#options = options
    this.isOpen = isOpen
    this.looksForHttp2 = !isTls
    this.limits = limits
    this.answers = database.store.answers
    this.browserGuard = browserGuard
    this.isTraced = traces !== undefined
    this.used = used
    this.serveByNode = serveByNode
    this.#run = runner(options)
    this.#keepAlive = `Connection: keep-alive\r\nKeep-Alive: timeout=${Math.floor(limits.idleMsMax / 1000)}\r\n`
    const shortest = Math.min(limits.idleMsMax, limits.headerMsMax)
    const tickMs = Math.min(TICK_MS_MAX, Math.ceil(shortest / TICKS_PER_TIMEOUT))
    const idleTicks = Math.ceil(limits.idleMsMax / tickMs)
    const unusedTicks = Math.ceil(limits.headerMsMax / tickMs)
    this.#ticking = setInterval(() => {
      for (const connection of this.#connections) connection.tick(idleTicks, unusedTicks)
    }, tickMs)
    this.#ticking.unref()
  }

  /** Created at the first request, because the app must be ready. */
  get ask(): Ask {
    this.#ask ??= asker(this.#app, this.limits, this.#options.kvCalls)
    return this.#ask
  }

  accept(socket: Socket): void {
    if ((socket as TLSSocket).alpnProtocol === 'h2') this.serveHttp2(socket)
    else if (this.#isClosing) this.serveByNode(socket)
    else this.#connections.add(new LaneConnection(socket, this))
  }

  serveHttp2(socket: Socket): void {
    this.used(socket)
    this.#options.http2.serve(socket)
  }

  gone(connection: LaneConnection): void {
    this.#connections.delete(connection)
  }

  grantOf({ token }: HeaderBlock): Grant | undefined {
    const { tokens } = this.#options
    if (tokens === undefined) return Grant.EVERYTHING
    return token === undefined ? undefined : tokens.authenticate(token)
  }

  letIn({ token }: HeaderBlock, grant: Grant): LetIn | undefined {
    return token === undefined ? undefined : this.#options.tokens?.letIn(token, grant)
  }

  start(call: Call): void {
    const { pacing } = this.#options
    if (pacing.mayStart()) this.#run(call)
    else
      pacing.wait(() => {
        call.startedMs = performance.now()
        if (!call.isGone) this.#run(call)
      })
  }

  answered(call: Call): void {
    const { slow, hotKeys, traces } = this.#options
    if (hotKeys.isNext()) hotKeys.note(touchedByCall(call.asked))
    if (slow !== undefined) logSlowCall(slow, call)
    if (traces !== undefined) traceCall(traces, call)
  }

  lastLines(isClosing: boolean): string {
    const nowMs = Date.now()
    if (nowMs >= this.#dateEndMs || nowMs < this.#dateEndMs - 1000) {
      this.#dateEndMs = nowMs - (nowMs % 1000) + 1000
      this.#date = `Date: ${new Date(nowMs).toUTCString()}\r\n`
    }
    return this.#date + (isClosing ? 'Connection: close\r\n' : this.#keepAlive)
  }

  async close(): Promise<void> {
    this.#isClosing = true
    clearInterval(this.#ticking)
    for (const connection of this.#connections) connection.close()
    this.#options.http2.close()
  }

  destroy(): void {
    for (const connection of this.#connections) connection.destroy()
  }
}
