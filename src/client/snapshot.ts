import type { SnapshotReader } from '../coordinator/snapshot-reader.js'
import type { Version } from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'
import type { CallOptions } from './autocommit.js'
import { batchGetValues } from './batch-get.js'
import { AS, type As, type Bytes, type Read, readValue, toKey, toKeys } from './bytes.js'
import type { DbBackend } from './db-backend.js'
import { type Expiring, expiringOf } from './expiry.js'
import { keyRangeOf, RANGE_KINDS, type RangeOptions } from './key-range.js'
import { optionsOf, SIGNAL } from './options.js'
import { SCAN_KINDS, type ScanOptions, type ScanPair, scanPages } from './scan.js'

/** @typeParam Ts includes undefined in a transaction, whose own writes have no `commitTs` yet. */
export interface Versioned<A extends As, Ts = Timestamp> extends Expiring {
  readonly value: Read<A>
  /** A write can pass it as `ifMatch`. */
  readonly commitTs: Ts
}

export function versioned<A extends As, Ts = Timestamp>(
  { value, commitTs, expireTs }: Pick<Version, 'value' | 'expireTs'> & { readonly commitTs: Ts },
  as: A,
  key: Uint8Array,
): Versioned<A, Ts> {
  return { value: readValue(value, as, key), commitTs, ...expiringOf(expireTs) }
}

export interface SnapshotReadOptions<A extends As = As> {
  /** The type in which values are returned. Default `text`. */
  readonly as?: A | undefined
  readonly signal?: AbortSignal | undefined
}

interface SignalOption {
  readonly signal?: AbortSignal | undefined
}

const readOptions = optionsOf<SnapshotReadOptions>('a read of a snapshot', { as: AS, signal: SIGNAL })
const scanOptions = optionsOf<ScanOptions & SignalOption>('scan', { ...SCAN_KINDS, signal: SIGNAL })
const countOptions = optionsOf<RangeOptions & SignalOption>('count', { ...RANGE_KINDS, signal: SIGNAL })

/** Runs a read under the given signal, or else under that of the snapshot. @throws TypeError once the `Db` is closed. */
export type SnapshotRead = <T>(
  signal: AbortSignal | undefined,
  read: (options: CallOptions) => Promise<T>,
) => Promise<T>

/** The whole database at one timestamp. Later commits do not change its answers. */
export class Snapshot {
  readonly #read: SnapshotRead
  readonly #backend: Pick<DbBackend, 'coordinator' | 'autocommit'>

  /** @internal */
  constructor(
    readonly ts: Timestamp,
    read: SnapshotRead,
    backend: Pick<DbBackend, 'coordinator' | 'autocommit'>,
  ) {
    this.#read = read
    this.#backend = backend
  }

  /** @returns undefined when the key was absent. */
  async get<A extends As = 'text'>(key: Bytes, options: SnapshotReadOptions<A> = {}): Promise<Read<A> | undefined> {
    return (await this.getVersion(key, options))?.value
  }

  /** Like `get`, with the `commitTs` of the version, and its expiry. */
  async getVersion<A extends As = 'text'>(
    key: Bytes,
    options: SnapshotReadOptions<A> = {},
  ): Promise<Versioned<A> | undefined> {
    const { as = 'text' as A, signal } = readOptions(options)
    const bytes = toKey(key)
    const found = await this.#read(signal, (call) => this.#reader(call).get(bytes))
    return found && versioned(found, as, bytes)
  }

  /** @returns the values in the order of the keys, undefined for absent keys. */
  async batchGet<A extends As = 'text'>(
    keys: readonly Bytes[],
    options: SnapshotReadOptions<A> = {},
  ): Promise<(Read<A> | undefined)[]> {
    const { as = 'text' as A, signal } = readOptions(options)
    return batchGetValues(toKeys(keys), as, (some) => this.#read(signal, (call) => this.#reader(call).batchGet(some)))
  }

  /** Yields the pairs of a range in the order of their keys. They are fetched in pages. */
  async *scan<A extends As = 'text', K extends boolean = false>(
    options: ScanOptions<A, K> & SignalOption = {},
  ): AsyncGenerator<ScanPair<A, K>, void, undefined> {
    const { signal } = scanOptions(options)
    yield* scanPages<A, K, Timestamp>(options, (page) => this.#read(signal, (call) => this.#reader(call).scan(page)))
  }

  /** Counts the keys in a range. No pairs are sent. */
  async count(options: RangeOptions & SignalOption = {}): Promise<number> {
    const range = keyRangeOf(countOptions(options))
    return (await this.#read(options.signal, (call) => this.#backend.autocommit.count(range, this.ts, call))).count
  }

  #reader(call: CallOptions): SnapshotReader {
    return this.#backend.coordinator.snapshot(this.ts, call)
  }
}
