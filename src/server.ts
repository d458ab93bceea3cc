import type { FastifyInstance } from 'fastify'
import { pino } from 'pino'
import type { Config } from './config.js'
import { createApp } from './http/app.js'
import { LISTEN_BACKLOG, SHUTDOWN_GRACE_MS } from './limits.js'
import { physicalMs } from './percolator/timestamp.js'
import { AnswerBudget } from './store/answer-budget.js'
import { openLevelDbStore } from './store/leveldb/leveldb-store.js'
import type { Store } from './store/store.js'
import { IDEMPOTENCY_MS, isOutcomeExpired } from './txn/idempotency.js'

export interface RunningServer {
  /** With the port that it really listens on. */
  readonly url: string
  /** Finishes what is in flight, then closes the database. */
  close(): Promise<void>
}

/**
 * Opens the store and listens.
 * @throws DataDirectoryError; errors of `listen`, such as `EADDRINUSE`.
 */
export async function startServer(config: Config, version: string): Promise<RunningServer> {
  const { data, durability, cacheBytesMax, limits, logLevel, host, port } = config
  const log = pino({ level: logLevel })
  const store = await openLevelDbStore({
    directory: data,
    durability,
    cacheBytesMax,
    answers: new AnswerBudget(limits),
  })
  let app: FastifyInstance | undefined
  try {
    app = await createApp({ store, limits, version, durability, log })
    await app.listen({ host, port, backlog: LISTEN_BACKLOG })
    const collector = setInterval(() => {
      const nowMs = physicalMs(store.clock())
      store.collectOutcomes((record) => isOutcomeExpired(record, nowMs)).catch((err) => log.error({ err }))
    }, IDEMPOTENCY_MS)
    const close = async (): Promise<void> => {
      clearInterval(collector)
      await shutDown(app as FastifyInstance, store)
    }
    return { url: urlOf(app), close }
  } catch (error) {
    await app?.close()
    await store.close()
    throw error
  }
}

async function shutDown(app: FastifyInstance, store: Store): Promise<void> {
  const cutOff = setTimeout(() => app.server.closeAllConnections(), SHUTDOWN_GRACE_MS)
  await app.close()
  clearTimeout(cutOff)
  await store.close()
}

function urlOf(app: FastifyInstance): string {
  const address = app.server.address()
  if (address === null || typeof address === 'string') throw new Error('the server listens on no port')
  const host = address.family === 'IPv6' ? `[${address.address}]` : address.address
  return `http://${host}:${address.port}`
}
