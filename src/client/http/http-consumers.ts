import type { ConsumerRegistration, ConsumerState, ConsumersApi } from '../../changes/rules/changes-api.js'
import type { Timestamp } from '../../timestamp.js'
import { ANYTHING, BOOLEAN, INTEGER, record, TEXT } from './answer-shape.js'
import { HttpRegistry, rangeOfWire, WIRE_RANGE, type WireRange } from './http-registry.js'
import type { HttpTransport } from './http-transport.js'

/** The server's consumer, with names in camelCase. */
type WireState = Omit<ConsumerState, 'range'> & WireRange

const STATE = record({
  ...WIRE_RANGE,
  name: TEXT,
  position: INTEGER,
  holdMs: INTEGER,
  lagMs: INTEGER,
  isLost: BOOLEAN,
})

export class HttpConsumers implements ConsumersApi {
  readonly #registry: HttpRegistry

  constructor(transport: HttpTransport) {
    this.#registry = new HttpRegistry(transport, '/v1/consumers')
  }

  async put(
    name: string,
    { range, ...options }: ConsumerRegistration,
  ): Promise<{ state: ConsumerState; isNew: boolean }> {
    const { status, message } = await this.#registry.send<WireState>('PUT', this.#registry.pathOf(name), STATE, {
      ...range,
      ...options,
    })
    return { state: stateOf(message), isNew: status === 201 }
  }

  async get(name: string): Promise<ConsumerState> {
    return stateOf((await this.#registry.send<WireState>('GET', this.#registry.pathOf(name), STATE)).message)
  }

  async list(): Promise<ConsumerState[]> {
    return (await this.#registry.list<WireState>('consumers', STATE)).map(stateOf)
  }

  async remove(name: string): Promise<void> {
    await this.#registry.send('DELETE', this.#registry.pathOf(name), ANYTHING)
  }

  async ack(name: string, ts: Timestamp): Promise<ConsumerState> {
    return stateOf(
      (await this.#registry.send<WireState>('POST', `${this.#registry.pathOf(name)}/ack`, STATE, { ts })).message,
    )
  }

  async reset(name: string, sinceTs?: Timestamp): Promise<ConsumerState> {
    return stateOf(
      (await this.#registry.send<WireState>('POST', `${this.#registry.pathOf(name)}/reset`, STATE, { sinceTs }))
        .message,
    )
  }
}

function stateOf({ prefix, start, end, ...state }: WireState): ConsumerState {
  return { ...state, range: rangeOfWire({ prefix, start, end }) }
}
