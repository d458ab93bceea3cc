import type { FastifyInstance } from 'fastify'
import type { Logger } from 'pino'
import type { Tokens } from './access/tokens.js'
import type { Config } from './config.js'
import { createApp } from './http/app.js'
import { changeTls, type TlsFiles } from './http/tls.js'
import { LISTEN_BACKLOG, SHUTDOWN_GRACE_MS } from './limits.js'
import { createLog } from './log.js'
import { isLoopback } from './loopback.js'
import { physicalMs } from './percolator/timestamp.js'
import { readTls, readTokens } from './secret-files.js'
import { AnswerBudget } from './store/answer-budget.js'
import { openLevelDbStore } from './store/leveldb/leveldb-store.js'
import type { Store } from './store/store.js'
import { IDEMPOTENCY_MS, isOutcomeExpired } from './txn/idempotency.js'

export interface RunningServer {
  /** With the port that it really listens on. */
  readonly url: string
  /** Reads tokens and certificates again; where they can't be used the old ones stay. */
  reload(): void
  /** Finishes what is in flight, then closes the database. */
  close(): Promise<void>
}

/**
 * Opens the store and listens.
 * @throws DataDirectoryError; UnusableFile (tokens, certificates); errors of `listen`, such as `EADDRINUSE`.
 */
export async function startServer(config: Config, version: string): Promise<RunningServer> {
  const { data, durability, cacheBytesMax, limits, gc, logLevel, host, port } = config
  const log = createLog(logLevel)
  const secrets = readSecrets(config, log)
  const store = await openLevelDbStore({
    directory: data,
    durability,
    cacheBytesMax,
    onEnd: (message) => log.fatal(`${message}; everything is refused from here on`),
    answers: new AnswerBudget(limits),
  })
  let app: FastifyInstance | undefined
  try {
    app = await createApp({
      ...{ store, limits, version, durability, log, gc },
      authenticate: secrets.tokens && ((token) => secrets.tokens?.grantOf(token)),
      browserGuard: config.tokenFile === undefined ? { loopbackNamesOnly: !config.insecure } : undefined,
      tls: secrets.tls,
    })
    await app.listen({ host, port, backlog: LISTEN_BACKLOG })
    const collector = setInterval(() => {
      const nowMs = physicalMs(store.clock())
      store
        .collectOutcomes((record) => isOutcomeExpired(record, nowMs))
        .catch((err) => log.error({ err }, 'old outcomes of idempotency keys stay'))
    }, IDEMPOTENCY_MS)
    const close = async (): Promise<void> => {
      clearInterval(collector)
      await shutDown(app as FastifyInstance, store)
    }
    return {
      url: urlOf(app, config.tls === undefined ? 'http' : 'https'),
      reload: reloader(config, secrets, app, log),
      close,
    }
  } catch (error) {
    await app?.close()
    await store.close()
    throw error
  }
}

/** What is in force; a reload replaces it. */
interface Secrets {
  tokens: Tokens | undefined
  tls: TlsFiles | undefined
}

function readSecrets({ tokenFile, tls, host }: Config, log: Logger): Secrets {
  if (tokenFile !== undefined && tls === undefined && !isLoopback(host))
    log.warn('tokens can be read on their way: give --tls-cert-file, or put a proxy with TLS in front')
  return { tokens: tokenFile === undefined ? undefined : readTokens(tokenFile, log), tls: tls && readTls(tls, log) }
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
      })
    if (tls !== undefined) each('certificates', () => changeTls(app, readTls(tls, log)))
  }
}

async function shutDown(app: FastifyInstance, store: Store): Promise<void> {
  const cutOff = setTimeout(() => app.server.closeAllConnections(), SHUTDOWN_GRACE_MS)
  await app.close()
  clearTimeout(cutOff)
  await store.close()
}

function urlOf(app: FastifyInstance, scheme: 'http' | 'https'): string {
  const address = app.server.address()
  if (address === null || typeof address === 'string') throw new Error('the server listens on no port')
  const host = address.family === 'IPv6' ? `[${address.address}]` : address.address
  return `${scheme}://${host}:${address.port}`
}
