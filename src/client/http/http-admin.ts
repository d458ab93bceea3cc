import type { Timestamp } from '../../timestamp.js'
import { ANYTHING, INTEGER, optional, record, TEXT } from './answer-shape.js'
import { HttpRegistry } from './http-registry.js'
import type { HttpTransport } from './http-transport.js'

export interface Pin {
  /** Its name in other calls. */
  readonly pin: string
  readonly ts: Timestamp
  readonly expiresAt: string
}

export interface Collection {
  readonly safePoint: Timestamp
  readonly versionsRemoved: number
  readonly heldBackBy?: string
}

const PIN = record({ pin: TEXT, ts: INTEGER, expiresAt: TEXT })
const COLLECTION = record({ safePoint: INTEGER, versionsRemoved: INTEGER, heldBackBy: optional(TEXT) })
/** A collection of a large store may take this long. */
const COLLECTION_MS_MAX = 15 * 60_000

/** Calls of operators. */
export class HttpAdmin {
  readonly #transport: HttpTransport
  readonly #pins: HttpRegistry

  constructor(transport: HttpTransport) {
    this.#transport = transport
    this.#pins = new HttpRegistry(transport, '/v1/admin/pins')
  }

  /** The oldest snapshot first. */
  listPins(): Promise<Pin[]> {
    return this.#pins.list('pins', PIN)
  }

  async removePin(pin: string): Promise<void> {
    await this.#pins.send('DELETE', this.#pins.pathOf(pin), ANYTHING)
  }

  async collect(request: {
    readonly safePoint?: Timestamp | undefined
    readonly lifeTimeMs?: number | undefined
  }): Promise<Collection> {
    const waits = { waitMs: COLLECTION_MS_MAX }
    return (await this.#pins.send<Collection>('POST', '/v1/admin/gc', COLLECTION, request, waits)).message
  }

  /** In Prometheus' text format. */
  async metrics(signal: AbortSignal): Promise<string> {
    const headers = { accept: 'text/plain' }
    const { body } = await this.#transport.send({ method: 'GET', path: '/metrics', headers, expects: 'text', signal })
    return new TextDecoder().decode(body)
  }
}
