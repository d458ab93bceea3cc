import { expect } from 'vitest'
import {
  type Headers,
  type Json,
  listOf,
  type Method,
  numberOf,
  okBody,
  type Sent,
  type TestServer,
} from './support.js'

export interface Claimed {
  readonly key: string
  readonly commit_ts: number
  readonly kind: string
  readonly fence: number
  readonly attempt: number
  readonly found?: boolean
  readonly value?: string
}

/** One observer of a server, and shorthands for its routes. */
export class Observing {
  readonly url: string

  constructor(
    readonly server: TestServer,
    readonly name: string,
    readonly headers: Headers = {},
  ) {
    this.url = `/v1/observers/${name}`
  }

  /** Registers it. */
  static async of(server: TestServer, registration: Json = { prefix: 'doc/' }, name = 'words'): Promise<Observing> {
    const observing = new Observing(server, name)
    const answer = await observing.put(registration)
    expect(answer.statusCode, answer.body).toBe(201)
    return observing
  }

  send(method: Method, path: string, body?: unknown): Promise<Sent> {
    const type = body === undefined ? {} : { 'content-type': 'application/json' }
    const payload = body === undefined ? undefined : JSON.stringify(body)
    return this.server.send(method, `${this.url}${path}`, { ...type, ...this.headers }, payload)
  }
  put(registration: Json): Promise<Sent> {
    return this.send('PUT', '', registration)
  }
  post(call: string, body: Json = {}): Promise<Sent> {
    return this.send('POST', `/${call}`, body)
  }
  async state(): Promise<Json> {
    return okBody(await this.send('GET', ''))
  }
  /** The state after a claim that finds nothing. Of a shared store `pending` counts clean cells too, until somebody looks at them. */
  async cleaned(): Promise<Json> {
    await this.claim()
    return this.state()
  }
  async claim(body: Json = {}): Promise<Claimed[]> {
    const answer = okBody(await this.post('claim', { worker: 'w', ...body }))
    return listOf(answer, 'notifications') as unknown as Claimed[]
  }
  /** The only cell that is there to be claimed. */
  async claimOne(body: Json = {}): Promise<Claimed> {
    const [claimed, ...others] = await this.claim({ limit: 10, ...body })
    expect(others).toEqual([])
    if (claimed === undefined) throw new Error('there is nothing to claim')
    return claimed
  }
  ackOf({ key, fence }: Pick<Claimed, 'key' | 'fence'>): Json {
    return { observer: this.name, key, fence }
  }
  /** Acknowledges it in a transaction of its own. */
  ack(claimed: Pick<Claimed, 'key' | 'fence'>, rest: Json = {}): Promise<Sent> {
    return this.server.post('/v1/txn', { acks: [this.ackOf(claimed)], ...rest }, this.headers)
  }
  /** @returns the commit_ts. */
  async acked(claimed: Pick<Claimed, 'key' | 'fence'>, rest: Json = {}): Promise<number> {
    return numberOf(okBody(await this.ack(claimed, rest)), 'commit_ts')
  }
  async release(claims: readonly Pick<Claimed, 'key' | 'fence'>[], rest: Json = {}): Promise<Json> {
    const named = claims.map(({ key, fence }) => ({ key, fence, ...rest }))
    return okBody(await this.post('release', { claims: named }))
  }
}
