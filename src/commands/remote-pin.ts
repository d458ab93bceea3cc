import { PIN_TTL_MS_DEFAULT } from '../limits.js'
import type { Timestamp } from '../timestamp.js'
import { Refused, type RemoteServer } from './remote-server.js'

/** A snapshot that the server's garbage collection leaves alone. */
export class RemotePin {
  readonly #renewal: NodeJS.Timeout

  private constructor(
    readonly server: RemoteServer,
    readonly path: string,
    readonly ts: Timestamp,
  ) {
    this.#renewal = setInterval(() => {
      server.json('PUT', path, { ttl_ms: PIN_TTL_MS_DEFAULT }).catch(() => {}) // The next one may get through.
    }, PIN_TTL_MS_DEFAULT / 4).unref()
  }

  /** @param ts the newest when absent. @returns undefined where the server has no pins, or not for this caller. */
  static async take(server: RemoteServer, ts: Timestamp | undefined): Promise<RemotePin | undefined> {
    try {
      const pinned = await server.json('POST', '/v1/admin/pins', { ...(ts && { ts }), ttl_ms: PIN_TTL_MS_DEFAULT })
      return new RemotePin(server, `/v1/admin/pins/${encodeURIComponent(String(pinned['pin']))}`, Number(pinned['ts']))
    } catch (error) {
      if (error instanceof Refused && (error.code === 'not_found' || error.code === 'forbidden')) return undefined
      throw error
    }
  }

  /** The pin lives on for its time. */
  leave(): void {
    clearInterval(this.#renewal)
  }

  async release(): Promise<void> {
    this.leave()
    await this.server.json('DELETE', this.path).catch(() => {}) // It goes by itself, later.
  }
}
