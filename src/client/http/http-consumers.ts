import type { ConsumerRegistration, ConsumerState, ConsumersApi } from '../../percolator/changes-api.js'
import type { GivenRange } from '../../percolator/given-range.js'
import type { Timestamp } from '../../timestamp.js'
import { messageOf } from './http-api.js'
import { encodeMessage, MSGPACK } from './http-message.js'
import type { HttpRequest, HttpTransport } from './http-transport.js'

/** A consumer as the server shows it, with names in camelCase. */
interface WireState extends Omit<ConsumerState, 'range'> {
  readonly prefix?: Uint8Array
  readonly start?: Uint8Array
  readonly end?: Uint8Array
}

/** The calls of consumers over HTTP: `/v1/consumers`. */
export class HttpConsumers implements ConsumersApi {
  readonly #transport: HttpTransport

  constructor(transport: HttpTransport) {
    this.#transport = transport
  }

  async put(
    name: string,
    { range, ...options }: ConsumerRegistration,
  ): Promise<{ state: ConsumerState; isNew: boolean }> {
    const { status, message } = await this.#send<WireState>('PUT', pathOf(name), { ...range, ...options })
    return { state: stateOf(message), isNew: status === 201 }
  }

  async get(name: string): Promise<ConsumerState> {
    return stateOf((await this.#send<WireState>('GET', pathOf(name))).message)
  }

  async list(): Promise<ConsumerState[]> {
    const { message } = await this.#send<{ consumers: readonly WireState[] }>('GET', CONSUMERS)
    return message.consumers.map(stateOf)
  }

  async remove(name: string): Promise<void> {
    await this.#send('DELETE', pathOf(name))
  }

  async ack(name: string, ts: Timestamp): Promise<ConsumerState> {
    return stateOf((await this.#send<WireState>('POST', `${pathOf(name)}/ack`, { ts })).message)
  }

  async reset(name: string, sinceTs?: Timestamp): Promise<ConsumerState> {
    return stateOf((await this.#send<WireState>('POST', `${pathOf(name)}/reset`, { sinceTs })).message)
  }

  async #send<T>(
    method: HttpRequest['method'],
    path: string,
    sent?: object,
  ): Promise<{ readonly status: number; readonly message: T }> {
    const content = sent && { headers: { 'content-type': MSGPACK }, body: encodeMessage(sent) }
    const { status, headers, body } = await this.#transport.send({ method, path, ...content })
    return { status, message: messageOf<T>(body, headers.get('content-type')) }
  }
}

const CONSUMERS = '/v1/consumers'

function pathOf(name: string): string {
  return `${CONSUMERS}/${encodeURIComponent(name)}`
}

function stateOf({ prefix, start, end, ...state }: WireState): ConsumerState {
  const range: GivenRange = prefix === undefined ? { start, end } : { prefix }
  return { ...state, range }
}
