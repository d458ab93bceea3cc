import Fastify, { type FastifyInstance } from 'fastify'
import type { Logger } from '../logger.js'
import { HttpMeters } from '../meters/http-meters.js'
import type { Targets } from '../webhooks/targets.js'
import { Webhooks } from '../webhooks/webhooks.js'
import { guardRoutes } from './admission/access.js'
import { parseBodies } from './admission/body-parsers.js'
import { Pacing, paceRequests } from './admission/pacing.js'
import { receivingOptions } from './admission/receiving.js'
import { type Authenticate, TokensInForce } from './admission/tokens-in-force.js'
import { Traffic } from './admission/traffic.js'
import { malformedHandler, refuseTunnels } from './connections/bare-answers.js'
import { addSafeHeaders, type BrowserGuard, guardFromBrowsers } from './connections/browser-safety.js'
import { closeConnections } from './connections/closing.js'
import { Heartbeats } from './connections/heartbeats.js'
import { Http2Connections } from './connections/http2.js'
import { measureRequests } from './connections/measure-requests.js'
import { pipelineRequests } from './connections/pipelining.js'
import { answerExpectations } from './connections/request-head.js'
import { logRequests } from './connections/request-log.js'
import { followRequests } from './connections/request-progress.js'
import { listenerOfNode, type TlsFiles, withTls } from './connections/tls.js'
import { type RequestTraces, traceRequests } from './connections/traced-requests.js'
import { ignoreUpgrades } from './connections/upgrades.js'
import { openFastLane } from './fast-lane/fast-lane.js'
import { HotKeys } from './load/hot-keys.js'
import { SlowRequests, watchSlowRequests } from './load/slow-requests.js'
import { adminRoutes } from './routes/admin.js'
import { backupRoutes } from './routes/backup.js'
import { changeRoutes } from './routes/changes.js'
import { consoleRoutes } from './routes/console.js'
import { consumerRoutes } from './routes/consumers.js'
import type { AppContext } from './routes/context.js'
import { interactiveRoutes } from './routes/interactive.js'
import { internalRoutes } from './routes/internal.js'
import { kvRoutes } from './routes/kv.js'
import { leaseRoutes } from './routes/leases.js'
import { loadRoute } from './routes/load.js'
import { metricsRoute } from './routes/metrics.js'
import { observerRoutes } from './routes/observers.js'
import { openApiRoutes } from './routes/openapi.js'
import { percolatorRoutes } from './routes/percolator.js'
import { collectRoutes, refuseUnroutable } from './routes/route-list.js'
import { deleteRangeRoute, scanRoutes } from './routes/scan.js'
import { statusRoutes } from './routes/status.js'
import { txnRoutes } from './routes/txn.js'
import { webhookRoutes } from './routes/webhooks.js'
import { type ErrorHandler, errorHandler, reportTo } from './wire/error-handler.js'
import { routedUrl } from './wire/key-url.js'
import { isUnknownMethod } from './wire/problem.js'
import { parseRawQuery } from './wire/query.js'
import { NO_COMPILERS, validateRequests } from './wire/validation.js'

export interface AppOptions
  extends Omit<AppContext, 'traffic' | 'heartbeats' | 'report' | 'meters' | 'slow' | 'hotKeys' | 'webhooks'> {
  /** Requests are logged at level `debug`. */
  readonly log: Logger
  /** Absent: no tokens are needed, and every caller may do everything. */
  readonly authenticate?: Authenticate | undefined
  /** Registers a function to call whenever `authenticate` may answer differently than before. */
  readonly onTokens?: ((changed: () => void) => void) | undefined
  readonly browserGuard?: BrowserGuard | undefined
  readonly tls?: TlsFiles | undefined
  /** Default: true. */
  readonly fastLane?: boolean | undefined
  /** Serves the remote protocol of Deno KV. Default: false. */
  readonly kvConnect?: boolean | undefined
  /** Absent: no webhooks are sent. */
  readonly webhookTargets?: Targets | undefined
  /** Requests that take this many milliseconds are logged. Default: 0, none. */
  readonly slowMs?: number | undefined
  /** Absent: requests are not traced. */
  readonly traces?: RequestTraces | undefined
}

/** Creates the HTTP server of a database. It does not listen yet. Closing it drains the database but does not close it. */
export async function createApp(options: AppOptions): Promise<FastifyInstance> {
  const { database, limits, log } = options
  const meters = new HttpMeters()
  const report = reportTo(log, meters, database.store)
  const answerError = errorHandler(report)
  const answerUnrouted: ErrorHandler = (error, request, reply) => {
    addSafeHeaders(reply) // No hook has run.
    answerError(error, request, reply)
  }
  const app: FastifyInstance = Fastify({
    logger: false, // See `logRequests`.
    bodyLimit: limits.bodyBytesMax,
    ...withTls(receivingOptions(limits), options.tls),
    return503OnClosing: false, // Requests that arrive while closing are served, with `connection: close`.
    rewriteUrl: routedUrl,
    routerOptions: {
      querystringParser: (text: string) => parseRawQuery(text) as Record<string, unknown>,
      maxParamLength: limits.headerBytesMax, // No transaction id is longer than a whole header may be.
    },
    clientErrorHandler: malformedHandler(limits),
    frameworkErrors: answerUnrouted,
    ...NO_COMPILERS,
  })
  app.setErrorHandler((error, request, reply) => {
    const answer = isUnknownMethod(error) ? answerUnrouted : answerError
    answer(error, request, reply)
  })

  // Hooks of every request, in this order. They take callbacks: one promise per hook would cost more than their work.
  collectRoutes(app)
  logRequests(app, log)
  const hotKeys = new HotKeys()
  measureRequests(app, meters, hotKeys)
  const { slowMs = 0, traces } = options
  const slow = slowMs > 0 ? new SlowRequests(log, slowMs) : undefined
  if (slow !== undefined || traces !== undefined) followRequests(app, traces !== undefined)
  watchSlowRequests(app, slow)
  traceRequests(app, traces)
  guardFromBrowsers(app, options.browserGuard)
  const tokens = options.authenticate && new TokensInForce(options.authenticate)
  guardRoutes(app, tokens)
  refuseUnroutable(app, answerError)
  validateRequests(app, limits, database.store)
  const used = closeConnections(app) // Registered before the waiting claims are answered, so that their answers say `connection: close`.
  const traffic = new Traffic(database.store, limits, log)
  traffic.watch(app)
  options.onTokens?.(() => tokens?.changed())
  parseBodies(app, traffic, limits)

  const isTls = options.tls !== undefined
  app.server.maxConnections = limits.connectionsMax
  app.server.maxHeadersCount = 0 // Their bytes are bounded. Node would drop lines silently.
  // Answers are sent to a client that has ended its side, over TLS too. These are no options of fastify, and not in Node's
  // types.
  Object.assign(app.server, { httpAllowHalfOpen: true, allowHalfOpen: true })
  refuseTunnels(app.server)
  answerExpectations(app.server)
  ignoreUpgrades(app.server, listenerOfNode(app.server, isTls).serve)
  const pacing = new Pacing(limits.requestsMax)
  const { authenticate, browserGuard, fastLane = true } = options
  // With its codec, which most servers do not need.
  const kvConnect = options.kvConnect ? await import('./kv-connect.js') : undefined
  openFastLane(app, isTls, {
    ...{ database, limits, traffic, pacing, report, meters, slow, hotKeys, traces, tokens, browserGuard, used },
    http2: new Http2Connections(app.server, limits),
    kvCalls: kvConnect && new kvConnect.KvCalls(database.store.cursorSecret, limits),
    isOpen: fastLane && !log.isLevelEnabled('debug'), // At level `debug` the hooks of fastify log each request.
  })
  const { webhookTargets: targets } = options
  const webhooks = targets && new Webhooks(database, { ...options, targets })
  webhooks?.start()
  app.addHook('preClose', async () => {
    await webhooks?.close()
    await database.drain()
  })

  const context = { ...options, traffic, report, meters, slow, hotKeys, webhooks, heartbeats: new Heartbeats() }
  statusRoutes(app, context)
  metricsRoute(app, context)
  loadRoute(app, context)
  kvRoutes(app, context)
  scanRoutes(app, context)
  deleteRangeRoute(app, context)
  txnRoutes(app, context)
  interactiveRoutes(app, context)
  percolatorRoutes(app, context)
  observerRoutes(app, context)
  consumerRoutes(app, context)
  webhookRoutes(app, context)
  leaseRoutes(app, context)
  changeRoutes(app, context)
  adminRoutes(app, context)
  backupRoutes(app, context)
  openApiRoutes(app, { ...context, needsTokens: authenticate !== undefined })
  consoleRoutes(app)
  internalRoutes(app, context)
  kvConnect?.kvConnectRoutes(app, context)
  await app.ready()
  paceRequests(app.server, pacing)
  pipelineRequests(app.server)
  return app
}
