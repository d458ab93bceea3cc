import { createHmac } from 'node:crypto'
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Json } from './support.js'

export interface Received {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
  readonly txns: readonly Json[]
}

/** Called with each request, when its body has come. */
export type Answers = (response: ServerResponse, received: Received, request: IncomingMessage) => void

/** A target of webhooks. */
export class Receiver {
  readonly all: Received[] = []
  /** By default every request is taken. */
  answers: Answers = (response) => response.writeHead(204).end()
  readonly #server = createServer((request, response) => {
    const parts: Buffer[] = []
    request.on('data', (part: Buffer) => parts.push(part))
    request.on('error', () => {})
    request.on('end', () => {
      const body = Buffer.concat(parts).toString()
      const { txns } = JSON.parse(body) as { readonly txns: readonly Json[] }
      const received = { path: request.url ?? '', headers: request.headers, body, txns }
      this.all.push(received)
      this.answers(response, received, request)
    })
  })

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    const address = this.#server.address()
    if (address === null || typeof address === 'string') throw new Error('no port')
    return `http://127.0.0.1:${address.port}/`
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve))
    this.#server.closeAllConnections()
    await closed
  }

  /** The commit_ts of all transactions, in the order in which they came. */
  get commits(): number[] {
    return this.all.flatMap(({ txns }) => txns.map((txn) => Number(txn['commit_ts'])))
  }
}

/** As docs/webhooks.md says it. */
export function isSigned({ headers, body }: Received, secret: string): boolean {
  const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`
  const key = Buffer.from(secret.slice('whsec_'.length), 'base64')
  return headers['webhook-signature'] === `v1,${createHmac('sha256', key).update(signed).digest('base64')}`
}
