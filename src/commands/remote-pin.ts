import { PIN_TTL_MS_DEFAULT } from '../limits.js'
import type { Timestamp } from '../timestamp.js'
import { Refused, type RemoteServer } from './remote-server.js'

/** A pin on the server, which keeps a snapshot from garbage collection. */
export class RemotePin {
  readonly #renewal: NodeJS.Timeout

  private constructor(
    readonly server: RemoteServer,
    readonly path: string,
  ) {
    this.#renewal = setInterval(() => {
      server.json('PUT', path, { ttl_ms: PIN_TTL_MS_DEFAULT }).catch(() => {}) // The next renewal may succeed.
    }, PIN_TTL_MS_DEFAULT / 4).unref()
  }

  /** @returns undefined when the server has no pins, or forbids this caller to pin. */
  static async take(server: RemoteServer, ts: Timestamp): Promise<RemotePin | undefined> {
    try {
      const pinned = await server.json('POST', '/v1/admin/pins', { ts, ttl_ms: PIN_TTL_MS_DEFAULT })
      return new RemotePin(server, `/v1/admin/pins/${encodeURIComponent(String(pinned['pin']))}`)
    } catch (error) {
      if (error instanceof Refused && (error.code === 'not_found' || error.code === 'forbidden')) return undefined
      throw error
    }
  }

  /** Stops renewing. The pin stays until it expires. */
  leave(): void {
    clearInterval(this.#renewal)
  }

  async release(): Promise<void> {
    this.leave()
    await this.server.json('DELETE', this.path).catch(() => {}) // It expires by itself.
  }
}
