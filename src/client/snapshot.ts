import type { KeyRange } from '../bytes/key-range.js'
import type { SnapshotReader } from '../coordinator/snapshot-reader.js'
import type { Timestamp } from '../timestamp.js'
import { batchGetValues } from './batch-get.js'
import { AS, type As, type Bytes, type Read, readValue, toKey, toKeys } from './bytes.js'
import type { During } from './db-home.js'
import { keyRangeOf, RANGE_KINDS, type RangeOptions } from './key-range.js'
import { optionsOf, SIGNAL } from './options.js'
import { SCAN_KINDS, type ScanOptions, type ScanPair, scanPages } from './scan.js'

export interface Versioned<A extends As> {
  readonly value: Read<A>
  /** A write can pass it as `ifMatch`. */
  readonly commitTs: Timestamp
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

/** The whole database at one timestamp. Later commits do not change its answers. */
export class Snapshot {
  readonly #readerOf: (signal: AbortSignal | undefined) => SnapshotReader
  readonly #count: (range: KeyRange, signal: AbortSignal | undefined) => Promise<number>
  readonly #during: During

  /** @internal */
  constructor(
    readonly ts: Timestamp,
    readerOf: (signal: AbortSignal | undefined) => SnapshotReader,
    count: (range: KeyRange, signal: AbortSignal | undefined) => Promise<number>,
    during: During,
  ) {
    this.#readerOf = readerOf
    this.#count = count
    this.#during = during
  }

  /** @returns undefined when the key was absent. */
  async get<A extends As = 'text'>(key: Bytes, options: SnapshotReadOptions<A> = {}): Promise<Read<A> | undefined> {
    return (await this.getVersion(key, options))?.value
  }

  /** Like `get`, with the `commitTs` of the version. */
  async getVersion<A extends As = 'text'>(
    key: Bytes,
    options: SnapshotReadOptions<A> = {},
  ): Promise<Versioned<A> | undefined> {
    const { as = 'text' as A, signal } = readOptions(options)
    const bytes = toKey(key)
    const found = await this.#during(() => this.#readerOf(signal).get(bytes))
    return found && { value: readValue(found.value, as, bytes), commitTs: found.commitTs }
  }

  /** @returns the values in the order of the keys, undefined for absent keys. */
  async batchGet<A extends As = 'text'>(
    keys: readonly Bytes[],
    options: SnapshotReadOptions<A> = {},
  ): Promise<(Read<A> | undefined)[]> {
    const { as = 'text' as A, signal } = readOptions(options)
    const reader = this.#readerOf(signal)
    return batchGetValues(toKeys(keys), as, (some) => this.#during(() => reader.batchGet(some)))
  }

  /** The pairs of a range in the order of their keys. They are fetched in pages. */
  async *scan<A extends As = 'text', K extends boolean = false>(
    options: ScanOptions<A, K> & SignalOption = {},
  ): AsyncGenerator<ScanPair<A, K>, void, undefined> {
    const reader = this.#readerOf(scanOptions(options).signal)
    yield* scanPages<A, K, Timestamp>(options, (page) => this.#during(() => reader.scan(page)))
  }

  /** The number of keys in a range. No pairs are sent. */
  async count(options: RangeOptions & SignalOption = {}): Promise<number> {
    const range = keyRangeOf(countOptions(options))
    return this.#during(() => this.#count(range, options.signal))
  }
}
