import { createServer } from 'node:net'
import { afterEach } from 'vitest'
import { parseTokens } from '../../src/access/tokens.js'
import type { RegistryRows } from '../../src/cluster/registry-rows.js'
import { TableRegistry } from '../../src/cluster/table-registry.js'
import { Database } from '../../src/database/database.js'
import { KvError } from '../../src/errors/kv-error.js'
import { type AppOptions, createApp } from '../../src/http/app.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { Clock } from '../../src/oracle/clock.js'
import { Oracle } from '../../src/oracle/oracle.js'
import { createLog } from '../../src/server/log.js'
import { AnswerBudget } from '../../src/store/answer-budget.js'
import { NEWEST_FORMAT } from '../../src/store/table/format/format-row.js'
import { registryRowsOf } from '../../src/store/table/records/registry-table.js'
import { TableStore } from '../../src/store/table/table-store.js'
import { utf8 } from '../store/support.js'
import { MemoryTable } from '../store/table/memory-table.js'
import { describedAnswer } from './described.js'
import { type Answer, type Headers, type Method, type Sent, sendTo } from './support.js'

/** Time that passes when a test says so. */
class ManualTime {
  nowMs = 0
  readonly #timers = new Set<{ readonly atMs: number; readonly call: () => void }>()

  readonly timer = (ms: number, call: () => void): (() => void) => {
    const one = { atMs: this.nowMs + ms, call }
    this.#timers.add(one)
    return () => this.#timers.delete(one)
  }

  async pass(ms: number): Promise<void> {
    const untilMs = this.nowMs + ms
    for (;;) {
      for (let turns = 0; turns < 20; turns++) await new Promise((next) => setImmediate(next)) // Calls on the table end.
      const [next] = [...this.#timers].sort((a, b) => a.atMs - b.atMs)
      if (next === undefined || next.atMs > untilMs) break
      this.#timers.delete(next)
      this.nowMs = Math.max(this.nowMs, next.atMs)
      next.call()
    }
    this.nowMs = untilMs
  }
}

export interface OneOfSeveral {
  readonly id: string
  readonly port: number
  readonly database: Database
  send(method: string, path: string, headers?: Headers, body?: string | Buffer): Promise<Answer>
  post(path: string, body?: unknown, headers?: Headers): Promise<Answer>
  /** As if it were killed: nobody answers, and its row stays. */
  kill(): Promise<void>
  stop(): Promise<void>
  /** The table does not answer its registry any more, as for a server that is partitioned from it, or stands still. */
  cutOff(): void
}

export interface SeveralServers {
  readonly servers: readonly OneOfSeveral[]
  readonly table: MemoryTable
  /** Of the registries: nobody is considered gone before a test lets time pass. */
  readonly time: ManualTime
}

export interface SeveralOptions {
  /** The text of a token file. */
  readonly tokens?: string
  readonly fastLane?: boolean
  readonly webhookTargets?: AppOptions['webhookTargets']
  /** Some answers are of no server of ours. Otherwise every answer is held to the schemas of its route. */
  readonly besideOthers?: boolean
}

/** Servers that listen, on one table in memory. They go away after each test. */
export function severalServers(): (count: number, options?: SeveralOptions) => Promise<SeveralServers> {
  const ends: (() => Promise<void>)[] = []
  afterEach(async () => {
    for (const end of ends.splice(0)) await end()
  })
  return async (count, { tokens, fastLane, webhookTargets, besideOthers = false } = {}) => {
    const table = new MemoryTable()
    const time = new ManualTime()
    const clock = new Clock({})
    const oracle = new Oracle({ savedMark: 0, save: async () => {}, clock })
    const limits = { ...DEFAULT_LIMITS, loopDelayMsMax: 0 }
    const known = tokens === undefined ? undefined : parseTokens(tokens)
    const start = async (i: number): Promise<OneOfSeveral> => {
      const answers = new AnswerBudget(limits)
      const cursorSecret = utf8('secret')
      const store = new TableStore({
        ...{ table, oracle, clock, answers, cursorSecret, cacheBytesMax: 100_000, registeringMs: 20 },
        format: () => NEWEST_FORMAT.format,
      })
      const port = await freePort()
      const id = `server-of-${i}`
      const { timer } = time
      const url = `http://127.0.0.1:${port}`
      let isCutOff = false
      const within = registryRowsOf(table)
      const reached = (): RegistryRows => {
        if (isCutOff) throw new KvError('storage_unavailable', 'cut off', {})
        return within
      }
      const rows: RegistryRows = {
        list: async () => reached().list(),
        read: async (name) => reached().read(name),
        swap: async (...change) => reached().swap(...change),
      }
      const registry = new TableRegistry({ rows, id, url, format: 1, timer, elapsedMs: () => time.nowMs })
      const database = await Database.open(store, { limits, registry, onError: () => {} })
      const authenticate = known && ((token: string) => known.grantOf(token))
      const log = createLog('silent')
      const context = { database, limits, log, version: '0.0.0-test', durability: 'async' } as const
      const app = await createApp({ ...context, authenticate, fastLane, webhookTargets })
      await app.listen({ port, host: '127.0.0.1' })
      let stopped: Promise<void> | undefined
      const stop = (): Promise<void> => {
        isCutOff = false
        stopped ??= app.close().then(() => database.close())
        return stopped
      }
      ends.push(stop)
      const send: OneOfSeveral['send'] = async (method, path, headers, body) => {
        const answer = await sendTo({ port }, method, path, headers, body)
        const { status: statusCode } = answer
        const sent: Sent = {
          ...{ statusCode, headers: answer.headers, body: answer.body, rawPayload: Buffer.from(answer.body) },
          json: () => JSON.parse(answer.body),
        }
        if (!besideOthers) describedAnswer(app, method as Method, path, sent)
        return answer
      }
      return {
        ...{ id, port, database, send, stop, cutOff: () => (isCutOff = true) },
        post: (path, body = {}, headers = {}) =>
          send('POST', path, { 'content-type': 'application/json', ...headers }, JSON.stringify(body)),
        async kill() {
          const closed = new Promise((resolve) => app.server.close(resolve))
          app.server.closeAllConnections()
          await closed
        },
      }
    }
    const servers: OneOfSeveral[] = []
    for (let i = 0; i < count; i++) servers.push(await start(i))
    return { servers, table, time }
  }
}

/** Another test may take it, which is not likely. */
async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  if (address === null || typeof address === 'string') throw new Error('no port')
  return address.port
}
