import type { LeasesApi } from '../../leases/rules/leases-api.js'
import { requireLeaseName } from '../name.js'
import type { NamedCall } from '../named-calls.js'
import { optionsOf, TEXT } from '../options.js'
import { TIMEOUT_KINDS, type TimeoutOptions } from '../transaction-options.js'
import { infoOf, type LeaseInfo } from './lease-options.js'

interface ListOptions extends TimeoutOptions {
  /** Prefix of the names. Default: all. */
  readonly prefix?: string | undefined
}

const listOptions = optionsOf<ListOptions>('list of leases', { ...TIMEOUT_KINDS, prefix: TEXT })
const getOptions = optionsOf<TimeoutOptions>('get of a lease', TIMEOUT_KINDS)

type Call = NamedCall<LeasesApi>

/** Lists leases and their holders. `db.lease` acquires one. A lease without a holder is `not_found`. */
export class Leases {
  readonly #call: Call

  /** @internal */
  constructor(call: Call) {
    this.#call = call
  }

  /** Leases that are held, in order of names. */
  async list(options: ListOptions = {}): Promise<LeaseInfo[]> {
    const { prefix, timeoutMs } = listOptions(options)
    return (await this.#call((api) => api.list(prefix), { timeoutMs, isRead: true })).map(infoOf)
  }

  async get(name: string, options: TimeoutOptions = {}): Promise<LeaseInfo> {
    const { timeoutMs } = getOptions(options)
    requireLeaseName(name)
    return infoOf(await this.#call((api) => api.get(name), { timeoutMs, isRead: true }))
  }
}
