import { randomBytes } from 'node:crypto'
import { Agent, request as httpRequest, type OutgoingHttpHeaders } from 'node:http'
import { text } from 'node:stream/consumers'
import { ConnectionError, type Db, isUncertain, KvError } from '../../src/client/index.js'
import { HttpTransaction, ISOLATIONS, isLost, MODES, Refused } from '../anomalies/http-transaction.js'
import type { Target } from '../anomalies/list-append-workload.js'
import { Random } from '../anomalies/random.js'

/** Keys that one client alone writes, all to one value. */
interface Register {
  readonly keys: readonly string[]
  /** What a reader may find; more than one value where an answer was lost. */
  possible: (string | undefined)[]
}

interface Seen {
  readonly ts: number
  readonly keys: readonly string[]
  readonly value: string | undefined
}

/** The server contradicts what it said before. */
class Contradiction extends Error {}

export interface RegistersOptions {
  readonly seed: number
  readonly db: Db
  readonly clients: number
  /** After each step. */
  readonly onStep: () => void
}

const SINGLES = ['put', 'delete', 'library_put', 'library_delete', 'put_once', 'refused_put'] as const
const PAIRS = ['txn', 'txn_once', 'interactive', 'refused_txn'] as const
type Kind = (typeof SINGLES)[number] | (typeof PAIRS)[number]

const JSON_TYPE = { 'content-type': 'application/json' }
const REGISTERS_A_CLIENT = 12
const SEEN_MAX = 30
/** Beside the lock or the write record, and beyond it; the long ones are what the database grows by. */
const NOISE = randomBytes(50_000).toString('base64') // LevelDB compresses.
const LENGTHS = [0, 10, 300, 4000, 50_000]

/**
 * The REST API and the library's autocommit calls against a server that dies. Each key has one writer, which so knows what
 * it may hold: the value last acknowledged, and those whose answers were lost since, until a read settles it. What was
 * refused is in no such list. Each client also counts a counter up under idempotency keys: exactly once each.
 */
export class Registers {
  readonly counts = { acknowledged: 0, lost: 0, repeated: 0, refused: 0, checked: 0, checkedAgain: 0 }
  readonly #target: Target
  readonly #options: RegistersOptions
  readonly #agent = new Agent({ keepAlive: true })
  #isEnding = false

  constructor(target: Target, options: RegistersOptions) {
    this.#target = target
    this.#options = options
  }

  /** Until `end` is called. @throws Contradiction */
  async run(): Promise<void> {
    const random = new Random(this.#options.seed)
    const clients = Array.from({ length: this.#options.clients }, (_, i) => this.#client(i, random.fork()))
    const results = await Promise.allSettled(clients)
    this.#agent.destroy()
    for (const result of results) if (result.status === 'rejected') throw result.reason
  }

  end(): void {
    this.#isEnding = true
  }

  async #client(number: number, random: Random): Promise<void> {
    const prefix = `registers/${number}/`
    const registers = Array.from({ length: REGISTERS_A_CLIENT }, (_, i): Register => {
      const keys = i % 2 === 0 ? [`${prefix}${i}`] : [`${prefix}${i}/a`, `${prefix}${i}/b`]
      return { keys, possible: [undefined] }
    })
    const seen: Seen[] = []
    let increments = 0
    const checkAll = async (): Promise<void> => {
      for (const register of registers) await this.#surviving(() => this.#check(register, seen, random))
      for (const old of seen) await this.#surviving(() => this.#checkAgain(old))
      const counter = await this.#surviving(() => this.#read([`${prefix}counter`]))
      if (Number(counter.value ?? 0) !== increments)
        throw new Contradiction(`${prefix}counter is ${counter.value} after ${increments} increments`)
    }
    for (let step = 0; !this.#isEnding; step++) {
      const life = this.counts.lost
      if (random.chance(0.15)) {
        await this.#surviving(() => this.#increment(`${prefix}counter`, `${prefix}${step}`))
        increments++
      } else {
        await this.#write(random.pick(registers), `${step}.${NOISE.slice(0, random.pick(LENGTHS))}`, random)
      }
      if (this.counts.lost !== life) await checkAll()
      else if (random.chance(0.1)) await this.#surviving(() => this.#check(random.pick(registers), seen, random))
      this.#options.onStep()
    }
    await checkAll()
  }

  async #write(register: Register, value: string, random: Random): Promise<void> {
    const kind: Kind = register.keys.length === 1 ? random.pick(SINGLES) : random.pick(PAIRS)
    const wanted = kind.endsWith('delete') ? undefined : value
    const send = () => this.#send(kind, register.keys, value, random)
    if (kind.startsWith('refused')) {
      const code = await this.#surviving(async () => send().then(() => 'none', codeOf))
      if (code !== 'precondition_failed') throw new Contradiction(`a condition that does not hold: ${code}`)
      this.counts.refused++
      return
    }
    const isOnce = kind.endsWith('once')
    try {
      await (isOnce ? this.#surviving(send) : send())
      register.possible = [wanted]
      this.counts.acknowledged++
    } catch (error) {
      if (!isGone(error)) throw error
      register.possible.push(wanted)
      this.counts.lost++
      await this.#target.isUp()
    }
  }

  async #send(kind: Kind, keys: readonly string[], value: string, random: Random): Promise<void> {
    const { url } = this.#target
    const { db } = this.#options
    const [key] = keys as [string]
    const path = `${url}/v1/kv/${key}`
    const once = { 'idempotency-key': `${key}@${value.slice(0, 12)}` }
    const ops = keys.map((one) => ({ op: 'put', key: one, value }))
    switch (kind) {
      case 'put':
        return this.#plain('PUT', path, value)
      case 'put_once':
        return request(path, { method: 'PUT', body: value, headers: once })
      case 'delete':
        return this.#plain('DELETE', path)
      case 'refused_put':
        return request(path, { method: 'PUT', body: `refused ${value}`, headers: { 'if-match': '"1"' } })
      case 'library_put':
        return void (await db.put(key, value))
      case 'library_delete':
        return void (await db.delete(key))
      case 'txn':
        return this.#plain('POST', `${url}/v1/txn`, JSON.stringify({ ops }), JSON_TYPE)
      case 'txn_once': {
        const headers = { ...JSON_TYPE, ...once }
        return request(`${url}/v1/txn`, { method: 'POST', body: JSON.stringify({ ops }), headers })
      }
      case 'refused_txn': {
        const body = JSON.stringify({ ops, checks: [{ key, commit_ts: 1 }] })
        return request(`${url}/v1/txn`, { method: 'POST', body, headers: JSON_TYPE })
      }
      case 'interactive': {
        const begin = { mode: random.pick(MODES), isolation: random.pick(ISOLATIONS) }
        const txn = await HttpTransaction.begin(url, begin)
        for (const one of keys) await txn.put(one, value)
        await txn.commit()
      }
    }
  }

  /** On connections that carry nothing but such requests, so that the server's fast lane keeps them. */
  #plain(method: string, url: string, body = '', headers: OutgoingHttpHeaders = {}): Promise<void> {
    return new Promise((resolve, reject) => {
      const gone = (cause: unknown): void => reject(new TypeError('no answer', { cause }))
      const sent = httpRequest(url, { method, agent: this.#agent, headers }, (answer) => {
        text(answer).then((found) => {
          if (answer.statusCode === 200) return resolve()
          const problem = JSON.parse(found) as Record<string, unknown>
          reject(new Refused(answer.statusCode ?? 0, String(problem['code']), problem))
        }, gone)
      })
      sent.on('error', gone)
      if (method === 'DELETE') sent.end()
      else sent.setHeader('content-length', Buffer.byteLength(body)).end(body)
    })
  }

  #increment(key: string, once: string): Promise<void> {
    const body = JSON.stringify({ ops: [{ op: 'increment', key, by: 1 }] })
    const headers = { ...JSON_TYPE, 'idempotency-key': once }
    return request(`${this.#target.url}/v1/txn`, { method: 'POST', body, headers })
  }

  /** Again and again, over restarts; for what may be repeated. */
  async #surviving<T>(body: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await body()
      } catch (error) {
        // A transaction that the restart ended.
        if (!isGone(error)) throw error
        this.counts.lost++
        this.counts.repeated++
        await this.#target.isUp()
      }
    }
  }

  async #check(register: Register, seen: Seen[], random: Random): Promise<void> {
    const { ts, value } = await this.#read(register.keys)
    if (!register.possible.includes(value)) {
      const [found, wanted] = [abridged(value), register.possible.map(abridged)]
      throw new Contradiction(`${register.keys[0]} is ${found}, and should be one of ${JSON.stringify(wanted)}`)
    }
    register.possible = [value]
    this.counts.checked++
    const old: Seen = { ts, keys: register.keys, value }
    if (seen.length < SEEN_MAX) seen.push(old)
    else seen[random.below(SEEN_MAX)] = old
  }

  /** What was read at a timestamp is read there for ever. */
  async #checkAgain({ keys, ts, value }: Seen): Promise<void> {
    const again = await this.#read(keys, ts)
    if (again.value !== value)
      throw new Contradiction(`${keys[0]} at ${ts} was ${abridged(value)}, and is ${abridged(again.value)}`)
    this.counts.checkedAgain++
  }

  /** One value of all the keys, in one snapshot. @throws Contradiction where they differ. */
  async #read(keys: readonly string[], ts?: number): Promise<{ ts: number; value: string | undefined }> {
    const body = JSON.stringify({ keys, ts })
    const answer = await fetch(`${this.#target.url}/v1/kv/batch_get`, { method: 'POST', body, headers: JSON_TYPE })
    if (!answer.ok) throw await refusal(answer)
    const found = (await answer.json()) as { ts: number; pairs: { key: string; value: string }[] }
    const values = keys.map((key) => found.pairs.find((pair) => pair.key === key)?.value)
    if (values.some((value) => value !== values[0]))
      throw new Contradiction(`half a transaction: ${keys} at ${found.ts} are ${values.map(abridged)}`)
    return { ts: found.ts, value: values[0] }
  }
}

async function request(url: string, init: RequestInit): Promise<void> {
  const answer = await fetch(url, init)
  if (!answer.ok) throw await refusal(answer)
  await answer.arrayBuffer()
}

async function refusal(answer: Response): Promise<Refused> {
  const problem = (await answer.json()) as Record<string, unknown>
  return new Refused(answer.status, String(problem['code']), problem)
}

/** Without an answer that says what became of it. */
function isGone(error: unknown): boolean {
  if (isLost(error)) return true
  if (error instanceof Refused) return error.code === 'txn_not_found' // The restart has ended it.
  return error instanceof ConnectionError || (error instanceof KvError && isUncertain(error))
}

function codeOf(error: unknown): string {
  if (error instanceof Refused) return error.code
  throw error
}

function abridged(value: string | undefined): string {
  return value === undefined ? 'absent' : value.slice(0, 12)
}
