import { isUtf8 } from 'node:buffer'
import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import Fastify, { type FastifyBaseLogger, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify'
import type { Logger } from 'pino'
import { Coordinator } from '../client/coordinator.js'
import { type GcOptions, GcWorker } from '../gc/gc-worker.js'
import { Pins } from '../gc/pins.js'
import { RETRY_AFTER_S } from '../limits.js'
import { invalid, isKvError, KvError } from '../percolator/errors.js'
import { IN_PROCESS_COMMIT } from '../txn/in-process-commit.js'
import { OneShots } from '../txn/one-shots.js'
import { OpenTransactions } from '../txn/open-transactions.js'
import { type Authenticate, guardRoutes } from './access.js'
import { answerProblem } from './answer.js'
import { closePipelined } from './answer-end.js'
import { atMostKeyword } from './at-most.js'
import { addSafeHeaders, type BrowserGuard, guardFromBrowsers, SAFE_HEADER_LINES } from './browser-safety.js'
import { isWireBytes } from './bytes.js'
import type { AppContext } from './context.js'
import { routedUrl } from './key-url.js'
import { compileLate } from './late-compilation.js'
import { CONTENT_TYPE } from './media-type.js'
import { problemOf, unknownRoute } from './problem.js'
import { parseRawQuery, type RawQuery, unknownParameter } from './query.js'
import { isStreaming, receivingOptions } from './receiving.js'
import { collectRoutes } from './route-list.js'
import { adminRoutes } from './routes/admin.js'
import { backupRoutes } from './routes/backup.js'
import { interactiveRoutes } from './routes/interactive.js'
import { kvRoutes } from './routes/kv.js'
import { percolatorRoutes } from './routes/percolator.js'
import { scanRoutes } from './routes/scan.js'
import { statusRoutes } from './routes/status.js'
import { txnRoutes } from './routes/txn.js'
import { isWithin, type TlsFiles, withTls } from './tls.js'
import { Traffic } from './traffic.js'
import { takeTurns } from './turns.js'
import { fromMsgpack, toJson } from './wire.js'
import { writtenTimestampKeyword } from './written-timestamp.js'

export interface AppOptions
  extends Omit<AppContext, 'coordinator' | 'oneShots' | 'openTransactions' | 'pins' | 'gc' | 'traffic'> {
  /** Default: collects when it is asked to. */
  readonly gc?: GcOptions
  /** Requests are logged from `debug` on. */
  readonly log: Logger
  /** Who may do what; absent: everybody everything. */
  readonly authenticate?: Authenticate | undefined
  /** Against web pages that use the browsers of people near the server; absent: none is needed. */
  readonly browserGuard?: BrowserGuard | undefined
  readonly tls?: TlsFiles | undefined
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Query parameters that the route knows; others are refused. */
    query?: readonly string[]
    /** An empty body counts as `{}`, also where its content type says JSON, as many HTTP libraries have it. */
    bodyMayBeEmpty?: boolean
  }
}

const NO_PARAMETERS: readonly string[] = []

/** The HTTP server, not listening yet. Closing it does not close the store. */
export async function createApp(options: AppOptions): Promise<FastifyInstance> {
  const sendProblem = problemSender(options.log)
  const app: FastifyInstance = Fastify({
    // A logger makes fastify watch the end of every response, whether or not it logs it.
    ...(options.log.isLevelEnabled('debug') ? { loggerInstance: options.log as FastifyBaseLogger } : { logger: false }),
    bodyLimit: options.limits.bodyBytesMax,
    ...withTls(receivingOptions(options.limits), options.tls),
    // While closing, requests that are on their way are served, with `connection: close`.
    return503OnClosing: false,
    rewriteUrl: routedUrl,
    routerOptions: {
      querystringParser: (text: string) => parseRawQuery(text) as Record<string, unknown>,
      maxParamLength: options.limits.headerBytesMax, // A name too long for a transaction is one that nobody has.
    },
    clientErrorHandler: refuseMalformed,
    frameworkErrors: (error, request, reply) => {
      addSafeHeaders(reply) // No hook has run.
      sendProblem(error, request, reply)
    },
    ajv: {
      // By default unknown fields would be dropped and "12" become 12.
      customOptions: { removeAdditional: false, coerceTypes: false, useDefaults: false, allErrors: false },
      plugins: [
        (ajv) => {
          // The decoder makes the bytes, and knows the limits.
          const validate = (_kind: unknown, value: unknown): boolean => isWireBytes(value)
          ajv.addKeyword({ keyword: 'bytes', schemaType: 'string', errors: false, validate })
          ajv.addKeyword({ keyword: 'zeroIsAbsent', schemaType: 'boolean' })
          ajv.addKeyword(atMostKeyword(options.limits))
          ajv.addKeyword(writtenTimestampKeyword({ now: () => options.store.now() }))
          compileLate(ajv)
          return ajv
        },
      ],
    },
  })

  collectRoutes(app)
  parseBodies(app)
  app.setErrorHandler(sendProblem)
  app.setNotFoundHandler((request, reply) => {
    sendProblem(unknownRoute(request.method, request.originalUrl), request, reply)
  })
  // Hooks of every request call back: a promise each would cost more than what they do.
  guardFromBrowsers(app, options.browserGuard)
  guardRoutes(app, options.authenticate)
  app.addHook('onRequest', (request, _reply, done) => {
    done(request.is404 ? unknownRoute(request.method, request.originalUrl) : undefined) // Before its body is looked at.
  })
  app.addHook('preValidation', (request, _reply, done) => {
    if (request.body === undefined && request.method === 'POST') request.body = {}
    done(unknownParameter(request.query as RawQuery, request.routeOptions.config.query ?? NO_PARAMETERS))
  })
  const traffic = new Traffic(options.store, options.limits, options.log)
  traffic.watch(app)
  app.server.maxConnections = options.limits.connectionsMax
  let isClosing = false
  /** Connections that never carried a request: Node counts them neither as idle nor as busy, and would wait for them. */
  const unused = new Set<Socket>()
  const track = (socket: Socket): void => {
    unused.add(socket)
    socket.once('close', () => unused.delete(socket))
  }
  app.server.on('connection', track)
  app.server.on('secureConnection', (secure: TLSSocket) => {
    for (const raw of unused) if (isWithin(secure, raw)) unused.delete(raw)
    track(secure)
  })
  app.server.on('request', (request) => unused.delete(request.socket))
  closePipelined(app.server)
  // An `Expect` that means nothing here is passed over; Node would answer 417 by itself, with no problem and no headers.
  app.server.on('checkExpectation', (request, response) => app.server.emit('request', request, response))
  app.addHook('preClose', async () => {
    isClosing = true
    for (const socket of unused) socket.destroy()
  })
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (isClosing) reply.header('connection', 'close')
    done(null, payload)
  })

  const coordinator = new Coordinator(options.store, IN_PROCESS_COMMIT)
  const openTransactions = new OpenTransactions(options.store, coordinator, options.limits)
  app.addHook('preClose', () => openTransactions.close())
  const pins = await Pins.open(options.store)
  const gc = new GcWorker(
    {
      store: options.store,
      pins,
      openTransactions: () => openTransactions.startTs(),
      onError: (err) => options.log.error({ err }, 'garbage collection failed'),
    },
    options.gc ?? { lifeTimeMs: 0, intervalMs: 0 },
  )
  app.addHook('preClose', () => gc.close())
  app.addHook('onClose', () => coordinator.idle())

  const oneShots = new OneShots(options.store, coordinator.resolver)
  const context = { ...options, coordinator, oneShots, openTransactions, pins, gc, traffic }
  statusRoutes(app, context)
  kvRoutes(app, context)
  scanRoutes(app, context)
  txnRoutes(app, context)
  interactiveRoutes(app, context)
  percolatorRoutes(app, context)
  adminRoutes(app, context)
  backupRoutes(app, context)
  await app.ready()
  takeTurns(app.server, options.limits.requestsMax)
  return app
}

/** JSON and MessagePack; anything else is refused with 415, text/plain included. */
function parseBodies(app: FastifyInstance): void {
  const parseJson = app.getDefaultJsonParser('error', 'error')
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    const bytes = body as Buffer
    if (bytes.length === 0 && request.routeOptions.config.bodyMayBeEmpty) return done(null, undefined)
    if (!isUtf8(bytes)) return done(invalid('body', 'the body is not UTF-8'))
    return parseJson(request, bytes.toString('utf8'), done)
  })
  const msgpack = ['application/msgpack', 'application/x-msgpack', 'application/vnd.msgpack']
  app.addContentTypeParser(msgpack, { parseAs: 'buffer' }, (_request, body, done) => {
    let value: unknown
    try {
      value = fromMsgpack(body as Buffer)
    } catch {
      return done(invalid('body', 'the body is not one MessagePack value with UTF-8 in its strs'))
    }
    return done(null, value)
  })
}

/** After the last answer on a connection. */
const LINGER_MS = 1000

/** A message that is no HTTP, whose headers are too long, or that takes too long: there is no request to answer, only a socket. */
function refuseMalformed(this: unknown, error: Error & { code?: string }, socket: Socket): void {
  const { _httpMessage: answer } = socket as Socket & { readonly _httpMessage?: ServerResponse | null } // As Node does it.
  // Nothing may be said in the middle of an answer that is on its way.
  if (error.code === 'ECONNRESET' || !socket.writable || answer?.headersSent) return void socket.destroy()
  const isLate = error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
  if (isLate && isStreaming(socket)) return
  socket.setTimeout(LINGER_MS, () => socket.destroy()) // Whoever doesn't read it, or goes on writing.
  if (isLate) {
    const head = `HTTP/1.1 408 ${STATUS_CODES[408]}\r\n${SAFE_HEADER_LINES}`
    return void socket.end(`${head}content-length: 0\r\nconnection: close\r\n\r\n`)
  }
  const isTooLong = error.code === 'HPE_HEADER_OVERFLOW'
  const refused = isTooLong
    ? new KvError('payload_too_large', 'the request line and headers are too long', { field: 'headers' })
    : invalid('headers', 'the request is malformed HTTP')
  const { status, body } = problemOf(refused, '')
  const text = toJson(body)
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${SAFE_HEADER_LINES}content-type: ${CONTENT_TYPE.problem}\r\n`
  socket.end(`${head}content-length: ${Buffer.byteLength(text)}\r\nconnection: close\r\n\r\n${text}`)
}

/** A storage that fails tells every request: the same is logged this often. */
const STORAGE_LOG_MS = 10_000

function problemSender(log: Logger) {
  let logged = { detail: '', atMs: 0 }
  const logStorage = (detail: string, reqId: string): void => {
    const nowMs = performance.now()
    if (detail === logged.detail && nowMs - logged.atMs < STORAGE_LOG_MS) return
    logged = { detail, atMs: nowMs }
    log.error({ reqId }, detail)
  }
  return (error: unknown, request: FastifyRequest, reply: FastifyReply): void => {
    const { status, body, isServerFault } = problemOf(error, request.id)
    if (isKvError(error, 'storage_unavailable')) logStorage(error.message, request.id)
    else if (isServerFault) log.error({ err: error, reqId: request.id }, 'request failed')
    if (isKvError(error, 'overloaded')) reply.header('retry-after', RETRY_AFTER_S)
    answerProblem(request, reply, status, body)
  }
}
