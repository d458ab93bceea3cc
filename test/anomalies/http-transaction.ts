/** One-shot and interactive transactions, as a program without a client library uses them: over fetch. */

export type Mode = 'optimistic' | 'pessimistic'
export type Isolation = 'snapshot' | 'serializable'
export const MODES: readonly Mode[] = ['optimistic', 'pessimistic']
export const ISOLATIONS: readonly Isolation[] = ['snapshot', 'serializable']

export interface Begin {
  readonly mode: Mode
  readonly isolation: Isolation
  readonly ttlMs?: number | undefined
}

type Json = Record<string, unknown>

/** An answer without success. */
export class Refused extends Error {
  override readonly name = 'Refused'
  constructor(
    readonly status: number,
    readonly code: string,
    readonly problem: Json,
  ) {
    super(`${status} ${code}: ${JSON.stringify(problem)}`)
  }
}

/** What fetch rejects with when the server goes away, or when its caller hangs up. */
export function isLost(error: unknown): boolean {
  return error instanceof TypeError || (error instanceof DOMException && error.name === 'AbortError')
}

/** @throws Refused; what fetch throws. */
async function send(url: string, init: RequestInit = {}): Promise<string> {
  const answer = await fetch(url, init)
  const text = await answer.text()
  if (answer.ok) return text
  const problem = JSON.parse(text) as Json
  throw new Refused(answer.status, String(problem['code']), problem)
}

export async function post<T = Json>(url: string, body: unknown = {}, signal?: AbortSignal): Promise<T> {
  const headers = { 'content-type': 'application/json' }
  const init = { method: 'POST', headers, body: JSON.stringify(body), ...(signal && { signal }) }
  return JSON.parse(await send(url, init)) as T
}

interface Pair {
  readonly key: string
  readonly value: string
}

/** @param query of a scan. @returns all pairs of one page. */
export async function scanPairs(url: string, query: Record<string, string>): Promise<Map<string, string>> {
  const { pairs, cursor } = JSON.parse(await send(`${url}?${new URLSearchParams({ limit: '10000', ...query })}`)) as {
    pairs: Pair[]
    cursor?: string
  }
  if (cursor !== undefined) throw new Error(`more than a page under ${JSON.stringify(query)}`)
  return new Map(pairs.map(({ key, value }) => [key, value]))
}

export interface LockOptions {
  readonly forUpdate?: boolean | undefined
  readonly lockWaitMs?: number | undefined
}

/** A transaction over several requests. Values are text. */
export class HttpTransaction {
  private constructor(
    readonly url: string,
    readonly startTs: number,
  ) {}

  static async begin(server: string, { mode, isolation, ttlMs }: Begin): Promise<HttpTransaction> {
    const body = { mode, isolation, ...(ttlMs === undefined ? {} : { ttl_ms: ttlMs }) }
    const begun = await post<{ txn: string; start_ts: number }>(`${server}/v1/txn/begin`, body)
    return new HttpTransaction(`${server}/v1/txn/${begun.txn}`, begun.start_ts)
  }

  /** @returns undefined when there is no such key. */
  async get(key: string, options: LockOptions = {}): Promise<string | undefined> {
    try {
      return await send(this.#urlOf(key, options))
    } catch (error) {
      if (error instanceof Refused && error.code === 'not_found') return undefined
      throw error
    }
  }

  getForUpdate(key: string, options: LockOptions = {}): Promise<string | undefined> {
    return this.get(key, { ...options, forUpdate: true })
  }

  async put(key: string, value: string, options: LockOptions = {}): Promise<void> {
    await send(this.#urlOf(key, options), { method: 'PUT', body: value })
  }

  async delete(key: string, options: LockOptions = {}): Promise<void> {
    await send(this.#urlOf(key, options), { method: 'DELETE' })
  }

  scan(prefix: string): Promise<Map<string, string>> {
    return scanPairs(`${this.url}/kv`, { prefix })
  }

  /** Several keys in one request. @returns in their order. */
  async getMany(keys: readonly string[]): Promise<(string | undefined)[]> {
    const ops = keys.map((key) => ({ op: 'get', key }))
    const { results } = await post<{ results: { value?: string }[] }>(`${this.url}/ops`, { ops })
    return results.map(({ value }) => value)
  }

  /** @param signal hangs up. @returns the commit_ts. */
  async commit(signal?: AbortSignal): Promise<number> {
    return (await post<{ commit_ts: number }>(`${this.url}/commit`, {}, signal)).commit_ts
  }

  async rollback(): Promise<void> {
    await post(`${this.url}/rollback`)
  }

  #urlOf(key: string, { forUpdate, lockWaitMs }: LockOptions): string {
    const query = new URLSearchParams()
    if (forUpdate) query.set('for_update', 'true')
    if (lockWaitMs !== undefined) query.set('lock_wait_ms', String(lockWaitMs))
    const text = query.toString()
    return `${this.url}/kv/${encodeURIComponent(key)}${text && `?${text}`}`
  }
}
