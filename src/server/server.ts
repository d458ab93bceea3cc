import { isIPv6 } from 'node:net'
import type { FastifyInstance } from 'fastify'
import type { Tokens } from '../access/tokens.js'
import { Database } from '../database/database.js'
import { createApp } from '../http/app.js'
import { isLoopback } from '../http/connections/loopback.js'
import { changeTls, type TlsFiles } from '../http/connections/tls.js'
import { LISTEN_BACKLOG, SHUTDOWN_GRACE_MS } from '../limits.js'
import type { Logger } from '../logger.js'
import type { Config } from './config.js'
import { watchDescriptors } from './file-descriptors.js'
import { requireFree, unusableAddress } from './listen-address.js'
import { openStore } from './open-store.js'
import type { OtlpTraces } from './otlp-traces.js'
import { isSelfSigned, reachableName } from './reachable-name.js'
import { readTls, readTokens } from './secret-files.js'

export interface RunningServer {
  /** URL with the actual port and a name that clients can connect to. */
  readonly url: string
  /** Where the data is, for people. */
  readonly place: string
  /** Path of the certificate, when it is self-signed: clients must be told to trust it. */
  readonly caFile: string | undefined
  /** Fulfilled when the server must not go on, and has to be closed. The message is one line. */
  readonly failed: Promise<Error>
  /** Logs the result of the start. */
  logStart(): void
  /** Reads tokens and certificates again. Keeps the old ones when the new ones cannot be used. */
  reload(): void
  /** Finishes the requests in flight, then closes the database. */
  close(): Promise<void>
}

/**
 * Opens the store and listens. Cheap checks come first, and a start that fails leaves no directory behind.
 * @throws UnusableFile (tokens, certificates); UnusableAddress; DataDirectoryError; UnusableTable.
 */
export async function startServer(config: Config, version: string, log: Logger): Promise<RunningServer> {
  const { durability, gc, host, fastLane, kvConnect, slowMs, tracesUrl, webhookTargets } = config
  const secrets = readSecrets(config, log)
  const port = await requireFree(host, config.port)
  const scheme = secrets.tls === undefined ? 'http' : 'https'
  // Other servers may ask for timestamps before this one listens, and are answered late then.
  const advertised = config.advertise ?? printUrl(scheme, reachableName(host, secrets.tls?.cert), port)
  const opened = await openStore(config, advertised, log)
  const { store, limits, member, registry } = opened
  let database: Database | undefined
  let app: FastifyInstance | undefined
  try {
    const onError = (message: string, err: unknown): void => {
      if (!store.upkeep.isReported(err)) log.error({ err }, message)
    }
    database = await awake(Database.open(store, { limits, registry, gc, onError }))
    const traces = tracesUrl === undefined ? undefined : await openTraces(tracesUrl, version, config, log)
    app = await createApp({
      ...{ database, limits, version, durability, log, member },
      authenticate: secrets.tokens && ((token) => secrets.tokens?.grantOf(token)),
      onTokens: (changed) => secrets.onTokens.push(changed),
      browserGuard: config.tokenFile === undefined ? { loopbackNamesOnly: !config.insecure } : undefined,
      tls: secrets.tls,
      fastLane,
      kvConnect,
      webhookTargets,
      slowMs,
      traces,
    })
    await listen(app, host, port)
    opened.listens?.()
    const unwatch = [watchDescriptors(log), watchExpiries(secrets, log)]
    const running = { app, database, traces, unwatch }
    const url = urlOf(app, secrets.tls)
    return {
      url,
      place: opened.place,
      failed: opened.failed ?? new Promise(() => {}),
      caFile: secrets.tls && isSelfSigned(secrets.tls.cert) ? config.tls?.cert : undefined,
      logStart() {
        opened.logStart()
        log.info(addressOf(running.app), `listening on ${url}`)
      },
      reload: reloader(config, secrets, app, log),
      close: () => shutDown(running),
    }
  } catch (error) {
    await app?.close()
    await (database ?? store)?.close()
    await opened.undo()
    throw error
  }
}

/** Keeps the process running while it waits for other servers: their timers do not, and nothing else does yet. */
async function awake<T>(opening: Promise<T>): Promise<T> {
  const keeping = setInterval(() => {}, 60_000)
  try {
    return await opening
  } finally {
    clearInterval(keeping)
  }
}

async function listen(app: FastifyInstance, host: string, port: number): Promise<void> {
  try {
    await app.listen({ host, port, backlog: LISTEN_BACKLOG })
  } catch (error) {
    throw unusableAddress(error, host, port)
  }
}

/** Tokens and certificates in force. A reload replaces them. */
interface Secrets {
  tokens: Tokens | undefined
  /** Called when the tokens were read again. */
  readonly onTokens: (() => void)[]
  tls: TlsFiles | undefined
}

function readSecrets({ tokenFile, tls, host }: Config, log: Logger): Secrets {
  if (tokenFile !== undefined && tls === undefined && !isLoopback(host))
    log.warn('tokens are sent without encryption: give --tls-cert-file, or put a proxy with TLS in front')
  return {
    onTokens: [],
    tokens: tokenFile === undefined ? undefined : readTokens(tokenFile, log),
    tls: tls && readTls(tls, log),
  }
}

const EXPIRY_LOOK_MS = 1000

/** Ends waiting requests of tokens that expire, and says which. */
function watchExpiries(secrets: Secrets, log: Logger): () => void {
  let seen: Tokens | undefined
  let seenMs = 0
  const look = (): void => {
    const { tokens } = secrets
    const nowMs = Date.now()
    const expired = tokens?.expiring(tokens === seen ? seenMs : 0, nowMs) ?? []
    seen = tokens
    seenMs = nowMs
    if (expired.length === 0) return
    log.warn(`no longer accepted, because they have expired: the tokens of ${expired.join(', ')}`)
    for (const changed of secrets.onTokens) changed()
  }
  look()
  const timer = setInterval(look, EXPIRY_LOOK_MS).unref()
  return () => clearInterval(timer)
}

function reloader(config: Config, secrets: Secrets, app: FastifyInstance, log: Logger): () => void {
  const { tokenFile, tls } = config
  const each = (what: string, reload: () => void): void => {
    try {
      reload()
      log.info(`${what} are read again`)
    } catch (error) {
      log.error(`${what} stay as they were: ${error instanceof Error ? error.message : error}`)
    }
  }
  return () => {
    if (tokenFile !== undefined)
      each('tokens', () => {
        secrets.tokens = readTokens(tokenFile, log)
        for (const changed of secrets.onTokens) changed()
      })
    if (tls !== undefined) each('certificates', () => changeTls(app, readTls(tls, log)))
  }
}

/** Loaded only when traces are sent. */
async function openTraces(url: string, version: string, { tls }: Config, log: Logger): Promise<OtlpTraces> {
  const { OtlpTraces } = await import('./otlp-traces.js')
  return new OtlpTraces({ url, version, scheme: tls === undefined ? 'http' : 'https', log })
}

interface Running {
  readonly app: FastifyInstance
  readonly database: Database
  readonly traces: OtlpTraces | undefined
  readonly unwatch: readonly (() => void)[]
}

async function shutDown({ app, database, traces, unwatch }: Running): Promise<void> {
  for (const stop of unwatch) stop()
  const cutOff = setTimeout(() => app.server.closeAllConnections(), SHUTDOWN_GRACE_MS)
  await app.close()
  clearTimeout(cutOff)
  await Promise.all([database.close(), traces?.close()])
}

function urlOf(app: FastifyInstance, tls: TlsFiles | undefined): string {
  const { address, port } = addressOf(app)
  return printUrl(tls === undefined ? 'http' : 'https', reachableName(address, tls?.cert), port)
}

function printUrl(scheme: 'http' | 'https', name: string, port: number): string {
  return `${scheme}://${isIPv6(name) ? `[${name.replace('%', '%25')}]` : name}:${port}`
}

function addressOf(app: FastifyInstance): { readonly address: string; readonly port: number } {
  const found = app.server.address()
  if (found === null || typeof found === 'string') throw new Error('the server listens on no port')
  return { address: found.address, port: found.port }
}
