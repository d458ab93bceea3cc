import type { LeasesApi } from '../../percolator/leases-api.js'
import { requireLeaseName } from '../name.js'
import { optionsOf, requireNoOptions, TEXT } from '../options.js'
import { infoOf, type LeaseInfo } from './lease-options.js'

interface ListOptions {
  /** Of the names. Default: all. */
  readonly prefix?: string | undefined
}

const listOptions = optionsOf<ListOptions>('list of leases', { prefix: TEXT })

type Call = <T>(call: (api: LeasesApi) => Promise<T>) => Promise<T>

/** Who holds which lease. `db.lease` acquires one. A lease that nobody holds is `not_found`. */
export class Leases {
  readonly #call: Call

  /** @internal */
  constructor(call: Call) {
    this.#call = call
  }

  /** Those that somebody holds, in order of their names. */
  async list(options: ListOptions = {}): Promise<LeaseInfo[]> {
    const { prefix } = listOptions(options)
    return (await this.#call((api) => api.list(prefix))).map(infoOf)
  }

  async get(name: string, ...none: []): Promise<LeaseInfo> {
    requireNoOptions('get of a lease', none)
    requireLeaseName(name)
    return infoOf(await this.#call((api) => api.get(name)))
  }
}
