import { signalOf } from '../../event-loop/lazy-signal.js'
import type { LeaseRequest, LeaseState, LeasesApi } from '../../leases/rules/leases-api.js'
import type { Timestamp } from '../../timestamp.js'
import { BOOLEAN, INTEGER, optional, record, TEXT } from './answer-shape.js'
import { HttpRegistry } from './http-registry.js'
import type { HttpTransport } from './http-transport.js'

/** The server's lease, with names in camelCase. */
type WireLease = Omit<LeaseState, 'expiresAtMs'> & { readonly expiresAt: string }

const LEASE = record({ name: TEXT, holder: TEXT, fence: INTEGER, ttlMs: INTEGER, expiresAt: TEXT })

/** Older servers, without attached keys, answer `{}`. */
interface WireRemoval {
  readonly deleting?: boolean
}
const REMOVAL = record({ deleting: optional(BOOLEAN) })

export class HttpLeases implements LeasesApi {
  readonly #registry: HttpRegistry

  constructor(transport: HttpTransport) {
    this.#registry = new HttpRegistry(transport, '/v1/leases')
  }

  async put(name: string, { signal, ...request }: LeaseRequest): Promise<LeaseState> {
    const rest = { waitMs: request.waitMs, signal: signalOf(signal) }
    const path = this.#registry.pathOf(name)
    return stateOf((await this.#registry.send<WireLease>('PUT', path, LEASE, request, rest)).message)
  }

  async get(name: string): Promise<LeaseState> {
    return stateOf((await this.#registry.send<WireLease>('GET', this.#registry.pathOf(name), LEASE)).message)
  }

  async list(prefix?: string): Promise<LeaseState[]> {
    return (await this.#registry.list<WireLease>('leases', LEASE, prefix)).map(stateOf)
  }

  async remove(name: string, holder: string, fence?: Timestamp, signal?: AbortSignal): Promise<{ deleting: boolean }> {
    const query = `holder=${encodeURIComponent(holder)}${fence === undefined ? '' : `&fence=${fence}`}`
    const path = `${this.#registry.pathOf(name)}?${query}`
    const { message } = await this.#registry.send<WireRemoval>('DELETE', path, REMOVAL, undefined, { signal })
    return { deleting: message.deleting === true }
  }
}

function stateOf({ name, holder, fence, ttlMs, expiresAt }: WireLease): LeaseState {
  return { name, holder, fence, ttlMs, expiresAtMs: Date.parse(expiresAt) }
}
