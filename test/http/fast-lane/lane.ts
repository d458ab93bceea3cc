import { mkdtemp, rm } from 'node:fs/promises'
import { connect as connectTcp, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { isDeepStrictEqual } from 'node:util'
import { parseTokens } from '../../../src/access/tokens.js'
import { DEFAULT_LIMITS } from '../../../src/limits.js'
import { OUTCOMES } from '../../../src/percolator/codec/outcome-key.js'
import { MemoryEngine } from '../../../src/store/leveldb/engine/memory-engine.js'
import { openLevelDbStore, openMemoryStore } from '../../../src/store/leveldb/leveldb-store.js'
import type { Store } from '../../../src/store/store.js'
import { TappedEngine } from '../../store/support.js'
import { serve, type TestServer } from '../support.js'
import { converse, type Dialogue, type Transcript } from './dialogue.js'
import { LEASE_HOLDER, LEASE_NAMES, LEASE_TTL_MS, withFences } from './leases.js'
import { TOKENS, type Variant } from './variants.js'

/** What each dialogue finds in the database, committed at `SEED_TS`. */
const SEEDS: readonly (readonly [key: string, value: string])[] = [
  ...Array.from({ length: 6 }, (_, slot) => [`k${slot}`, `value ${slot}`] as const),
  ...Array.from({ length: 6 }, (_, slot) => [`i${slot}`, `${slot}`] as const),
  ['e', ''],
  ['long', 'L'.repeat(3000)],
  ['bin', '\0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n'],
  ['a/b', 'with a slash'],
]
export const SEED_TS = 20
/** Observes keys that begin with a k. */
export const OBSERVER = 'o'

interface Changes {
  count: number
}

export interface Outcome extends Transcript {
  /** The difference that it makes to the database: one line per pair, and per lease. */
  readonly changes: readonly string[]
  /** What node:http was given of the connection when the fast lane handed it over. */
  readonly handedOver: HandedOver | undefined
}

export interface HandedOver {
  /** How many bytes the fast lane had served. */
  readonly served: number
  /** How many bytes it gave to node:http at once. */
  readonly given: number
}

/** A server whose connections go through one of the two lanes, with a database of its own. It has one dialogue at a time. */
export class Lane {
  readonly #server: TestServer
  readonly #variant: Variant
  readonly #engine: TappedEngine
  /** Counts changes of the store. */
  readonly #changes: Changes
  /** The server's ends of connections, by the client's port. */
  readonly #sockets = new Map<number, Socket>()
  /** Of clients of the dialogues. A client of another test may try a port that was its server's before. */
  readonly #clients = new Set<number>()
  #port = 0
  #answering = 0
  #isByData = false
  /** Of TLS: a handshake of its own for each connection would take most of the time. */
  #session: Buffer | undefined
  #handedOver: HandedOver | undefined
  /** The contents after this many changes. */
  #read: { readonly changes: number; readonly contents: readonly string[] } = { changes: -1, contents: [] }
  #forgottenBytes = 0
  #seeded: readonly string[] | undefined
  /** What `#leases` has returned then. */
  #granted: readonly string[] = []
  /** Of `LEASE_NAMES`. */
  #fences: readonly number[] = []

  private constructor(
    server: TestServer,
    variant: Variant,
    engine: TappedEngine,
    changes: Changes,
    readonly isFast: boolean,
  ) {
    this.#server = server
    this.#variant = variant
    this.#engine = engine
    this.#changes = changes
  }

  static async open(variant: Variant, fastLane: boolean): Promise<Lane> {
    const changes = { count: 0 }
    const engine = new TappedEngine()
    const inMemory = new MemoryEngine()
    const write = inMemory.write.bind(inMemory)
    inMemory.write = (ops) => {
      changes.count++
      return write(ops)
    }
    engine.onWrite = (_, land) => {
      changes.count++
      engine.writes.length = 0
      return land()
    }
    const directory = await mkdtemp(join(tmpdir(), 'perkv-lane-'))
    const store =
      variant.store === 'leveldb'
        ? await openLevelDbStore({ directory, durability: 'async', openEngine: engine.open })
        : await openMemoryStore({}, inMemory)
    const known = variant.tokens === undefined ? undefined : parseTokens(variant.tokens)
    const options = {
      limits: { ...DEFAULT_LIMITS, loopDelayMsMax: 0, ...variant.limits },
      authenticate: known && ((token: string) => known.grantOf(token)),
      browserGuard: variant.browserGuard,
      tls: variant.tls,
      fastLane,
    }
    const lane = new Lane(await serve(store, directory, options), variant, engine, changes, fastLane)
    await lane.#server.database.observers.put(OBSERVER, { range: { prefix: Buffer.from('k') } })
    await lane.#listen()
    return lane
  }

  get isTls(): boolean {
    return this.#variant.tls !== undefined
  }

  get #store(): Store {
    return this.#server.store
  }

  async #listen(): Promise<void> {
    const { server } = this.#server.app
    server.on(this.#variant.tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) => {
      const port = socket.remotePort ?? 0
      this.#sockets.set(port, socket)
      socket.once('close', () => this.#sockets.delete(port))
      if (this.isFast) this.#watch(socket)
      if (this.#isByData) socket.on('data', () => {})
    })
    server.on('request', (_, answer) => {
      this.#answering++
      answer.once('close', () => this.#answering--)
    })
    this.#port = await this.#server.listen()
  }

  #watch(socket: Socket): void {
    let arrived = 0
    const onData = ({ length }: Buffer): void => {
      if ('parser' in socket) {
        // It is node:http's now. That the fast lane gives it comes a second time.
        this.#handedOver = { served: arrived - length, given: length }
        socket.off('data', onData)
      } else arrived += length
    }
    socket.prependListener('data', onData) // The fast lane hands over within its own listener.
  }

  async close(): Promise<void> {
    const { app, database, directory } = this.#server
    await app.close()
    await database.close()
    await rm(directory, { recursive: true, force: true })
  }

  /** Counts that must be 0 between dialogues, and the connections that must be none. */
  async held(): Promise<object> {
    const headers = { host: 'localhost', authorization: `Bearer ${TOKENS.rw}` }
    const answer = await this.#server.app.inject({ method: 'GET', url: '/v1/status', headers })
    const { requests, receiving, body_bytes: bodyBytes, answer_bytes: answerBytes, locks } = answer.json().overload
    return { requests, receiving, bodyBytes, answerBytes, locks, connections: this.#connections() }
  }

  #connections(): readonly string[] {
    const own = [...this.#sockets].filter(([port]) => port === 0 || this.#clients.has(port))
    return own.map(([port, socket]) => {
      const { bytesRead, bytesWritten, readableEnded, writableEnded, readableFlowing } = socket
      const state = { bytesRead, bytesWritten, readableEnded, writableEnded, readableFlowing }
      return `${this.isFast ? 'fast lane' : 'node:http'} ${this.#variant.name}, port ${port}: ${JSON.stringify(state)}`
    })
  }

  /** @param isByData node:http gets the bytes as events, and does not read them from the handle itself. */
  async run(dialogue: Dialogue, isByData = false): Promise<Outcome> {
    this.#isByData = isByData
    await this.#forget()
    if (!isDeepStrictEqual(await this.#leases(), this.#granted) || this.#granted.length === 0) await this.#grant()
    if ((await this.#contents()) !== this.#seeded) await this.#seed()
    this.#answering = 0
    this.#handedOver = undefined
    const client = await this.#connect()
    const { localPort = 0 } = client
    this.#clients.add(localPort)
    const { leases } = this.#server.database
    const transcript = await converse(this.#fenced(dialogue), client, {
      socket: () => this.#sockets.get(localPort),
      isWorking: () => this.#engine.running > 0 || leases.summary().waiting > 0,
      isAnswering: () => this.#answering > 0,
    })
    const contents = [...(await this.#contents()), ...(await this.#leases())]
    const seeded = [...(this.#seeded ?? []), ...this.#granted]
    const changed = contents.filter((line) => !seeded.includes(line))
    return {
      ...transcript,
      handedOver: this.#handedOver,
      changes: [...changed, ...seeded.filter((line) => !contents.includes(line)).map((line) => `no more: ${line}`)],
    }
  }

  #fenced({ prelude = [], segments, ...rest }: Dialogue): Dialogue {
    const pieces = withFences([...prelude, ...segments], this.#fences)
    return { ...rest, prelude: pieces.slice(0, prelude.length), segments: pieces.slice(prelude.length) }
  }

  async #leases(): Promise<readonly string[]> {
    const all = await this.#server.database.leases.list()
    return all.map(({ name, holder, ttlMs, fence }) => `lease ${name} of ${holder} for ${ttlMs} under ${fence}`)
  }

  async #grant(): Promise<void> {
    const { leases } = this.#server.database
    for (const { name, holder } of await leases.list()) await leases.remove(name, holder)
    const request = { holder: LEASE_HOLDER, ttlMs: LEASE_TTL_MS }
    const granted = await Promise.all(LEASE_NAMES.map((name) => leases.put(name, request)))
    this.#fences = granted.map(({ fence }) => fence)
    this.#granted = await this.#leases()
  }

  async #connect(): Promise<Socket> {
    const to = { port: this.#port, host: '127.0.0.1', noDelay: true }
    const { isTls } = this
    const session = this.#session && { session: this.#session }
    const client = isTls ? connectTls({ ...to, ...session, rejectUnauthorized: false }) : connectTcp(to)
    client.once('session', (given: Buffer) => {
      this.#session = given
    })
    await new Promise((resolve, reject) => {
      client.once(isTls ? 'secureConnect' : 'connect', resolve).once('error', reject)
    })
    return client
  }

  async #seed(): Promise<void> {
    await this.#store.deleteRange({ start: Buffer.of(0), end: Buffer.alloc(9, 0xff) })
    const keys = SEEDS.map(([key]) => Buffer.from(key))
    const [primary = Buffer.of()] = keys
    const mutations = SEEDS.map(([key, value]) => {
      return { op: 'put', key: Buffer.from(key), value: Buffer.from(value, 'latin1') } as const
    })
    await this.#store.prewrite({ mutations, primary, startTs: SEED_TS - 1, lockTtl: 3000 })
    // No commit: where a dialogue's key has expired, observers have passed the clock, and `min_commit_ts` is above it.
    const txns = [{ startTs: SEED_TS - 1, commitTs: SEED_TS }]
    await this.#store.resolveLock({ txns, keys, isDecided: true })
    this.#seeded = await this.#contents()
  }

  /** Outcomes of idempotency keys. */
  async #forget(): Promise<void> {
    const { outcomeBytes } = this.#server.database.status()
    if (outcomeBytes === this.#forgottenBytes) return
    this.#forgottenBytes = outcomeBytes
    await this.#store.sweepRows(OUTCOMES, () => true)
  }

  async #contents(): Promise<readonly string[]> {
    const { count: changes } = this.#changes
    if (this.#read.changes !== changes) this.#read = { changes, contents: await this.#lines() }
    return this.#read.contents
  }

  async #lines(): Promise<readonly string[]> {
    if (this.#store.locks?.count !== 0) return ['locks are left']
    const lines: string[] = []
    const { pairs } = await this.#store.scan({ limit: 1000, ts: await this.#store.tso(1) })
    for (const { key, value, commitTs } of pairs) {
      const { writes } = commitTs === SEED_TS ? { writes: [] } : await this.#store.mvccGetByKey({ key })
      const versions = writes.map(({ type, commitTs }) => `${type} at ${commitTs}`)
      lines.push(`${text(key)} = ${text(value ?? Buffer.of())} at ${commitTs}; ${versions.join(', ')}`)
    }
    return lines
  }
}

const text = (bytes: Uint8Array): string => JSON.stringify(Buffer.from(bytes).toString('latin1'))
