import { randomBytes } from 'node:crypto'
import type { SystemName, SystemRecords } from '../store/system-records.js'
import { decodeLease, encodeLease } from './rules/codec/lease.js'
import type { LeaseRecord } from './rules/lease-record.js'

const LEASES = 'lease/' satisfies SystemName
/** Leases whose records this process remembers. */
const KNOWN_MAX = 10_000
/** No two records of all processes have the same one. */
const NONCE_BYTES = 12

/** A record as it was read or written. */
export interface SeenLease {
  /** undefined: there is none. */
  readonly lease: LeaseRecord | undefined
  readonly bytes: Uint8Array | undefined
}

/** The records of leases that several servers change, each by one conditional write on what was seen. */
export class LeaseRecords {
  readonly #system: SystemRecords
  /** Grants in force, as this process has written them. The oldest is dropped first. */
  readonly #known = new Map<string, SeenLease>()

  constructor(system: SystemRecords) {
    this.#system = system
  }

  async read(name: string): Promise<SeenLease> {
    return seen(await this.#system.get(`${LEASES}${name}`))
  }

  /** `leases[i]` is that of `names[i]`. */
  async many(names: readonly string[]): Promise<(LeaseRecord | undefined)[]> {
    const records = await this.#system.many(names.map((name): SystemName => `${LEASES}${name}`))
    return names.map((_, i) => seen(records[i]).lease)
  }

  /** In the order of their names. */
  async list(prefix: string): Promise<ReadonlyMap<string, SeenLease>> {
    const records = await this.#system.list(`${LEASES}${prefix}`)
    return new Map([...records].map(([record, bytes]) => [record.slice(LEASES.length), seen(bytes)]))
  }

  /** The same, some at a time. @param after only names above it. */
  async *pages(
    prefix: string,
    after: string | undefined,
  ): AsyncGenerator<readonly (readonly [name: string, lease: SeenLease])[], void> {
    const above: SystemName | undefined = after === undefined ? undefined : `${LEASES}${after}`
    for await (const records of this.#system.pages(`${LEASES}${prefix}`, above))
      yield records.map(([record, bytes]) => [record.slice(LEASES.length), seen(bytes)] as const)
  }

  /**
   * What this process has written last, while that was a grant or a renewal. Others may have changed it since: only a swap that succeeds
   * proves anything.
   */
  guess(name: string): SeenLease | undefined {
    return this.#known.get(name)
  }

  /**
   * @param lease undefined removes the record.
   * @returns the record as it stands now; undefined: somebody else was faster.
   * @throws KvError `storage_unavailable`: it may be done or not.
   */
  async swap(name: string, before: SeenLease, lease: LeaseRecord | undefined): Promise<SeenLease | undefined> {
    const bytes = lease && encodeLease(lease, randomBytes(NONCE_BYTES))
    this.#known.delete(name)
    if (!(await this.#system.replace(`${LEASES}${name}`, before.bytes, bytes))) return undefined
    const after = { lease, bytes }
    if (lease?.state === 'held') this.#remember(name, after)
    return after
  }

  #remember(name: string, after: SeenLease): void {
    this.#known.set(name, after)
    if (this.#known.size <= KNOWN_MAX) return
    for (const oldest of this.#known.keys()) {
      this.#known.delete(oldest)
      break
    }
  }
}

function seen(bytes: Uint8Array | undefined): SeenLease {
  return { bytes, lease: bytes && decodeLease(bytes) }
}
