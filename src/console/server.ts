import { HttpApi } from '../client/http/http-api.js'
import { HttpTransport } from '../client/http/http-transport.js'
import { connect, type Db } from '../client/index.js'
import type { Version } from './answers.js'
import { jsonBytes, type WireBytes, wireOf } from './wire-bytes.js'

/** The page's own URL without its name: a proxy may serve the server below a path. */
export const BASE = location.href.replace(/[?#].*$/, '').replace(/\/console\/?$/, '')

export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly problem: Readonly<Record<string, unknown>>,
  ) {
    super(detail)
  }
}

/** The server that the page came from, as the holder of one token sees it. */
export class Server {
  readonly db: Db
  /** The calls of the protocol, for what the library does with them. */
  readonly calls: HttpApi

  constructor(readonly token: string | undefined) {
    const options = { retryMs: 0, ...(token !== undefined && { token }) }
    this.db = connect(BASE, options)
    this.calls = new HttpApi(new HttpTransport(BASE, options))
  }

  get<T>(path: string, signal?: AbortSignal): Promise<T> {
    return this.#send(path, { ...(signal && { signal }) })
  }

  delete<T>(path: string, signal?: AbortSignal): Promise<T> {
    return this.#send(path, { method: 'DELETE', ...(signal && { signal }) })
  }

  async text(path: string, signal?: AbortSignal): Promise<string> {
    const response = await fetch(BASE + path, {
      headers: this.#headers(),
      cache: 'no-store',
      ...(signal && { signal }),
    })
    if (!response.ok) throw await refusedBy(response)
    return response.text()
  }

  post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
    const content = { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }
    return this.#send(path, { ...content, ...(signal && { signal }) })
  }

  /** A call of the protocol, which answers 423 instead of waiting, and ends no other transaction. */
  percolator<T>(call: string, body: unknown, signal?: AbortSignal): Promise<T> {
    return this.post(`/v1/percolator/${call}`, body, signal)
  }

  async tso(signal?: AbortSignal): Promise<number> {
    return (await this.percolator<{ ts: number }>('tso', {}, signal)).ts
  }

  /**
   * Writes a value over one version of a key, with the expiry and the lease of that version.
   * @throws KvError, Refused: `precondition_failed` or `write_conflict` when the key has another version.
   */
  async overwrite(name: WireBytes, value: Uint8Array, { commitTs, expireTs, leaseFence }: Version): Promise<void> {
    const key = jsonBytes(name)
    if (leaseFence === undefined) {
      await this.db.put(key, value, { ifMatch: commitTs, expireAt: expireTs })
      return
    }
    // Only a prewrite can keep a lease without its name, which this token may not be allowed to see.
    const startTs = await this.tso()
    const now = (await this.db.getVersion(key, { ts: startTs, as: 'bytes' }))?.commitTs ?? 0
    if (now !== commitTs) throw new Refused(412, 'precondition_failed', 'the key has changed', { commit_ts: now })
    const put = { op: 'put', key: name, value: wireOf(value), expire_ts: expireTs, keeps_lease: true }
    const { one_pc_commit_ts: committed } = await this.percolator<{ one_pc_commit_ts?: number }>('prewrite', {
      ...{ mutations: [put], primary: name, start_ts: startTs, try_one_pc: true },
    })
    if (committed === undefined)
      await this.percolator('commit', { keys: [name], start_ts: startTs, commit_ts: await this.tso() })
  }

  close(): void {
    void this.db.close()
  }

  async #send<T>(path: string, init: RequestInit & { headers?: Record<string, string> }): Promise<T> {
    const headers = { accept: 'application/json', ...this.#headers(), ...init.headers }
    const response = await fetch(BASE + path, { ...init, headers, cache: 'no-store' })
    if (!response.ok) throw await refusedBy(response)
    return (await response.json()) as T
  }

  #headers(): Record<string, string> {
    return this.token === undefined ? {} : { authorization: `Bearer ${this.token}` }
  }
}

async function refusedBy(response: Response): Promise<Refused> {
  const problem = (await response.json().catch(() => ({}))) as Record<string, unknown>
  const { code = 'unexpected_answer', detail = `HTTP ${response.status}` } = problem
  return new Refused(response.status, String(code), String(detail), problem)
}

export function reasonOf(error: unknown): string {
  if (error instanceof TypeError && /fetch/i.test(error.message)) return 'The server cannot be reached.'
  if (error instanceof Error) return error.message
  return String(error)
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError'
}
