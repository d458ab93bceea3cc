import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify'
import type { Logger } from 'pino'
import { isKvError, type KvError } from '../errors/kv-error.js'
import { RETRY_AFTER_S } from '../limits.js'
import { CorruptRecord } from '../percolator/codec/key.js'
import { type Authenticate, guardRoutes } from './admission/access.js'
import { parseBodies } from './admission/body-parsers.js'
import { paceRequests } from './admission/pacing.js'
import { receivingOptions } from './admission/receiving.js'
import { Traffic } from './admission/traffic.js'
import { closePipelined } from './connections/answer-end.js'
import { malformedHandler, refuseTunnels } from './connections/bare-answers.js'
import { addSafeHeaders, type BrowserGuard, guardFromBrowsers } from './connections/browser-safety.js'
import { logRequests } from './connections/request-log.js'
import { isWithin, type TlsFiles, withTls } from './connections/tls.js'
import { adminRoutes } from './routes/admin.js'
import { backupRoutes } from './routes/backup.js'
import type { AppContext } from './routes/context.js'
import { interactiveRoutes } from './routes/interactive.js'
import { kvRoutes } from './routes/kv.js'
import { percolatorRoutes } from './routes/percolator.js'
import { collectRoutes, unroutable } from './routes/route-list.js'
import { scanRoutes } from './routes/scan.js'
import { statusRoutes } from './routes/status.js'
import { txnRoutes } from './routes/txn.js'
import { answerProblem } from './wire/answer.js'
import { atMostKeyword } from './wire/at-most.js'
import { isWireBytes } from './wire/bytes.js'
import { routedUrl } from './wire/key-url.js'
import { compileLate } from './wire/late-compilation.js'
import { problemOf } from './wire/problem.js'
import { parseRawQuery, type RawQuery, unknownParameter } from './wire/query.js'
import { writtenTimestampKeyword } from './wire/written-timestamp.js'

export interface AppOptions extends Omit<AppContext, 'traffic'> {
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
  const { database } = options
  const sendProblem = problemSender(options.log)
  const app: FastifyInstance = Fastify({
    logger: false, // See `logRequests`.
    bodyLimit: options.limits.bodyBytesMax,
    ...withTls(receivingOptions(options.limits), options.tls),
    // While closing, requests that are on their way are served, with `connection: close`.
    return503OnClosing: false,
    rewriteUrl: routedUrl,
    routerOptions: {
      querystringParser: (text: string) => parseRawQuery(text) as Record<string, unknown>,
      maxParamLength: options.limits.headerBytesMax, // A name too long for a transaction is one that nobody has.
    },
    clientErrorHandler: malformedHandler(options.limits),
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
          ajv.addKeyword({ keyword: 'distinct', schemaType: 'string' }) // The decoder checks it.
          ajv.addKeyword(atMostKeyword(options.limits))
          ajv.addKeyword(writtenTimestampKeyword({ now: () => database.store.now() }))
          compileLate(ajv)
          return ajv
        },
      ],
    },
  })

  collectRoutes(app)
  app.setErrorHandler(sendProblem)
  app.setNotFoundHandler((request, reply) => {
    sendProblem(unroutable(app, request.method, request.originalUrl), request, reply)
  })
  // Hooks of every request call back: a promise each would cost more than what they do.
  logRequests(app, options.log)
  guardFromBrowsers(app, options.browserGuard)
  guardRoutes(app, options.authenticate)
  app.addHook('onRequest', (request, _reply, done) => {
    done(request.is404 ? unroutable(app, request.method, request.originalUrl) : undefined) // Before its body is looked at.
  })
  app.addHook('preValidation', (request, _reply, done) => {
    if (request.body === undefined && request.method === 'POST') request.body = {}
    done(unknownParameter(request.query as RawQuery, request.routeOptions.config.query ?? NO_PARAMETERS))
  })
  const traffic = new Traffic(database.store, options.limits, options.log)
  traffic.watch(app)
  parseBodies(app, traffic, options.limits)
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
  refuseTunnels(app.server)
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

  app.addHook('preClose', () => database.drain())
  const context = { ...options, traffic }
  statusRoutes(app, context)
  kvRoutes(app, context)
  scanRoutes(app, context)
  txnRoutes(app, context)
  interactiveRoutes(app, context)
  percolatorRoutes(app, context)
  adminRoutes(app, context)
  backupRoutes(app, context)
  await app.ready()
  paceRequests(app.server, options.limits.requestsMax)
  return app
}

/** A storage that fails tells every request: the same is logged this often. */
const STORAGE_LOG_MS = 10_000

function withoutKey({ message, cause }: KvError): string {
  return cause instanceof CorruptRecord ? `the database is damaged: ${cause.withoutKey}` : message
}

/** Of a stream that nobody takes any more: fastify closes it, and has that for an error where nothing was sent yet. */
function isUnheard(error: unknown, { raw }: FastifyReply): boolean {
  return raw.destroyed && error instanceof Error && 'code' in error && error.code === 'ERR_STREAM_PREMATURE_CLOSE'
}

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
    if (isKvError(error, 'storage_unavailable')) logStorage(withoutKey(error), request.id)
    else if (isServerFault && !isUnheard(error, reply)) log.error({ err: error, reqId: request.id }, 'request failed')
    if (isKvError(error, 'overloaded')) reply.header('retry-after', RETRY_AFTER_S)
    if (isKvError(error, 'method_not_allowed')) reply.header('allow', error.fields.allow.join(', '))
    answerProblem(request, reply, status, body)
  }
}
