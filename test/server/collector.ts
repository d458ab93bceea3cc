import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { vi } from 'vitest'

export interface SentSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  readonly name: string
  readonly kind: number
  readonly statusCode: number
  readonly attributes: Readonly<Record<string, unknown>>
  readonly beganNs: bigint
  readonly endedNs: bigint
}

type Attribute = { readonly key: string; readonly value: Readonly<Record<string, unknown>> }

const attributesOf = (list: readonly Attribute[]): Record<string, unknown> =>
  Object.fromEntries(list.map(({ key, value: { intValue, stringValue } }) => [key, stringValue ?? Number(intValue)]))

/** A collector of OTLP over HTTP with JSON. */
export class Collector {
  readonly spans: SentSpan[] = []
  /** Bodies as they came. */
  readonly texts: string[] = []
  resource: Readonly<Record<string, unknown>> = {}
  readonly #answer: (response: ServerResponse) => void
  readonly #server = createServer(async (request, response) => {
    let text = ''
    for await (const piece of request.setEncoding('utf8')) text += piece
    this.texts.push(text)
    if (request.url === '/v1/traces') this.#take(JSON.parse(text))
    this.#answer(response)
  })

  /** @param answer default: 200. */
  constructor(answer: (response: ServerResponse) => void = (response) => void response.end('{}')) {
    this.#answer = answer
  }

  async listen(): Promise<string> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** biome-ignore lint/suspicious/noExplicitAny: OTLP, as the specification has it. */
  #take(body: any): void {
    for (const { resource, scopeSpans } of body.resourceSpans) {
      this.resource = attributesOf(resource.attributes)
      for (const { spans } of scopeSpans)
        for (const { attributes, status, startTimeUnixNano, endTimeUnixNano, ...span } of spans)
          this.spans.push({
            ...span,
            statusCode: status.code,
            attributes: attributesOf(attributes),
            beganNs: BigInt(startTimeUnixNano),
            endedNs: BigInt(endTimeUnixNano),
          })
    }
  }

  /** Waits for the span of a request. */
  server(name: string, count = 1): Promise<SentSpan> {
    return vi.waitFor(() => {
      const span = this.spans.filter((one) => one.name === name && one.kind === 2)[count - 1]
      if (span === undefined) throw new Error(`no span ${name} among ${this.spans.map((one) => one.name)}`)
      return span
    })
  }

  /** The names of the spans in a span, in the order of their begin. */
  within({ spanId }: SentSpan): string[] {
    const children = this.spans.filter(({ parentSpanId }) => parentSpanId === spanId)
    return children.sort((a, b) => Number(a.beganNs - b.beganNs)).map(({ name }) => name)
  }

  close(): void {
    this.#server.closeAllConnections()
    this.#server.close()
  }
}
