import type { Fetch } from '../../../src/client/http/fetch-sender.js'

/**
 * What the network does to a request: `lose_request`: it never arrives, `lose_answer`: it arrives and its answer doesn't,
 * `twice`: it arrives two times, `busy`: something in between answers 503, `refuse`: nobody listens.
 */
export type Fate = 'arrive' | 'lose_request' | 'lose_answer' | 'twice' | 'busy' | 'refuse'

export interface Call {
  readonly method: string
  /** Without the query. */
  readonly path: string
  /** How many of this method and path came before. */
  readonly index: number
}

/** A network with faults between the client and a real server, and a record of what was sent. */
export class FaultyNetwork {
  readonly calls: Call[] = []
  readonly #counts = new Map<string, number>()

  constructor(public fateOf: (call: Call) => Fate = () => 'arrive') {}

  countOf(path: string): number {
    return this.calls.filter((call) => call.path === path).length
  }

  readonly fetch: Fetch = async (url, init) => {
    const { pathname: path } = new URL(url)
    const method = init.method ?? 'GET'
    const index = this.#counts.get(`${method} ${path}`) ?? 0
    this.#counts.set(`${method} ${path}`, index + 1)
    const call = { method, path, index }
    this.calls.push(call)
    const fate = this.fateOf(call)
    if (fate === 'refuse') throw connectionError('ECONNREFUSED')
    if (fate === 'lose_request') throw connectionError('ECONNRESET')
    if (fate === 'busy') return new Response('<h1>503</h1>', { status: 503, headers: { 'retry-after': '0' } })
    const answer = await fetch(url, init)
    if (fate === 'twice') {
      await answer.arrayBuffer()
      return fetch(url, init)
    }
    if (fate === 'lose_answer') {
      await answer.arrayBuffer()
      throw connectionError('ECONNRESET')
    }
    return answer
  }
}

/** As undici rejects: the reason is one `cause` down. */
function connectionError(code: string): TypeError {
  return new TypeError('fetch failed', { cause: Object.assign(new Error(`it is ${code}`), { code }) })
}
