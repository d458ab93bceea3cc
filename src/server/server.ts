import { isIPv6 } from 'node:net'
import type { FastifyInstance } from 'fastify'
import type { Tokens } from '../access/tokens.js'
import { Database } from '../database/database.js'
import { createApp } from '../http/app.js'
import { isLoopback } from '../http/connections/loopback.js'
import { changeTls, type TlsFiles } from '../http/connections/tls.js'
import { LISTEN_BACKLOG, SHUTDOWN_GRACE_MS } from '../limits.js'
import type { Logger } from '../logger.js'
import { AnswerBudget } from '../store/answer-budget.js'
import { makeDirectory, unmakeDirectory } from '../store/leveldb/directory/make-directory.js'
import { type OpenedDatabase, openLevelDbStore } from '../store/leveldb/leveldb-store.js'
import type { Store } from '../store/store.js'
import type { Config } from './config.js'
import { requireFree, unusableAddress } from './listen-address.js'
import type { OtlpTraces } from './otlp-traces.js'
import { isSelfSigned, reachableName } from './reachable-name.js'
import { readTls, readTokens } from './secret-files.js'

export interface RunningServer {
  /** URL with the actual port and a name that clients can connect to. */
  readonly url: string
  /** Path of the certificate, when it is self-signed: clients have to be told to trust it. */
  readonly caFile: string | undefined
  /** Writes the result of the start to the log. */
  logStart(): void
  /** Reads tokens and certificates again. Keeps the old ones when the new ones cannot be used. */
  reload(): void
  /** Finishes the requests in flight, then closes the database. */
  close(): Promise<void>
}

/**
 * Opens the store and listens. Cheap checks come first, and a start that fails leaves no directory behind.
 * @throws UnusableFile (tokens, certificates); UnusableAddress; DataDirectoryError.
 */
export async function startServer(config: Config, version: string, log: Logger): Promise<RunningServer> {
  const { data, durability, cacheBytesMax, tuning, limits, gc, host, port, fastLane, slowMs, tracesUrl } = config
  const secrets = readSecrets(config, log)
  await requireFree(host, port)
  const made = await makeDirectory(data)
  let opened: OpenedDatabase | undefined
  let store: Store | undefined
  let database: Database | undefined
  let app: FastifyInstance | undefined
  try {
    store = await openLevelDbStore({
      directory: data,
      durability,
      cacheBytesMax,
      tuning,
      onOpen: (found) => {
        opened = found
      },
      onConvert: (from, to) =>
        log.info(`${data} has format ${from} and is converted to ${to}, which older versions of PerKV cannot open`),
      onEnd: (message) => log.fatal(`${message}; everything is refused from here on`),
      onClockStep: (message) => log.warn(message),
      answers: new AnswerBudget(limits),
      locksMax: limits.locksMax,
    })
    database = await Database.open(store, { limits, gc, onError: (message, err) => log.error({ err }, message) })
    const traces = tracesUrl === undefined ? undefined : await openTraces(tracesUrl, version, config, log)
    app = await createApp({
      ...{ database, limits, version, durability, log },
      authenticate: secrets.tokens && ((token) => secrets.tokens?.grantOf(token)),
      onTokens: (changed) => secrets.onTokens.push(changed),
      browserGuard: config.tokenFile === undefined ? { loopbackNamesOnly: !config.insecure } : undefined,
      tls: secrets.tls,
      fastLane,
      slowMs,
      traces,
    })
    await listen(app, host, port)
    const running = { app, database, traces }
    const url = urlOf(app, secrets.tls)
    return {
      url,
      caFile: secrets.tls && isSelfSigned(secrets.tls.cert) ? config.tls?.cert : undefined,
      logStart() {
        if (opened !== undefined) logOpened(log, data, opened)
        log.info(addressOf(running.app), `listening on ${url}`)
      },
      reload: reloader(config, secrets, app, log),
      close: () => shutDown(running),
    }
  } catch (error) {
    await app?.close()
    await (database ?? store)?.close()
    await unmakeDirectory(data, made)
    throw error
  }
}

async function listen(app: FastifyInstance, host: string, port: number): Promise<void> {
  try {
    await app.listen({ host, port, backlog: LISTEN_BACKLOG })
  } catch (error) {
    throw unusableAddress(error, host, port)
  }
}

function logOpened(log: Logger, directory: string, opened: OpenedDatabase): void {
  const { isNew, replayedBytes, durationMs, locks } = opened
  const how = isNew ? 'made a new database in' : 'opened the database in'
  const replayed = replayedBytes === 0 ? '' : `, ${Math.ceil(replayedBytes / 1024)} KiB of log replayed`
  log.info(
    { directory, ...opened },
    `${how} ${directory} in ${durationMs} ms${isNew ? '' : `${replayed}, ${locks} locks stand`}`,
  )
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
}

async function shutDown({ app, database, traces }: Running): Promise<void> {
  const cutOff = setTimeout(() => app.server.closeAllConnections(), SHUTDOWN_GRACE_MS)
  await app.close()
  clearTimeout(cutOff)
  await Promise.all([database.close(), traces?.close()])
}

function urlOf(app: FastifyInstance, tls: TlsFiles | undefined): string {
  const { address, port } = addressOf(app)
  const name = reachableName(address, tls?.cert)
  return `${tls === undefined ? 'http' : 'https'}://${isIPv6(name) ? `[${name}]` : name}:${port}`
}

function addressOf(app: FastifyInstance): { readonly address: string; readonly port: number } {
  const found = app.server.address()
  if (found === null || typeof found === 'string') throw new Error('the server listens on no port')
  return { address: found.address, port: found.port }
}
