import type { KeyRange } from '../bytes/key-range.js'
import type { Awaitable } from '../event-loop/after.js'
import { eitherSignal, type LazySignal, stagesOf } from '../event-loop/lazy-signal.js'
import { timed } from '../event-loop/stages.js'
import type { GetAnswer, Pair, PercolatorApi, ScanAnswer, Version } from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'
import type { Resolver } from './lock-resolver.js'

export interface ReadOptions {
  readonly lockWaitMs: number
  readonly signal?: AbortSignal | undefined
}

export interface SnapshotScan extends KeyRange {
  readonly limit: number
  readonly reverse?: boolean | undefined
  readonly keyOnly?: boolean | undefined
  /** In process only: the scan ends with the pair that reaches this many bytes of keys and values. */
  readonly bytesMax?: number | undefined
}

export class SnapshotReader {
  constructor(
    readonly api: PercolatorApi,
    readonly resolver: Resolver,
    readonly ts: Timestamp,
    readonly options: ReadOptions,
  ) {}

  async get(key: Uint8Array, lockWaitMs?: number, signal?: LazySignal): Promise<Version | undefined> {
    const answer = await this.#resolving<GetAnswer>(() => this.api.get({ key, ts: this.ts }), lockWaitMs, signal)
    return answer.found ? answer : undefined
  }

  /** @param keys no duplicates. @returns the pairs that exist, in any order. */
  async batchGet(keys: readonly Uint8Array[]): Promise<readonly Pair[]> {
    if (keys.length === 0) return []
    return (await this.#resolving(() => this.api.batchGet({ keys, ts: this.ts }))).pairs
  }

  scan(request: SnapshotScan, lockWaitMs?: number, signal?: LazySignal): Promise<ScanAnswer> {
    return this.#resolving(() => this.api.scan({ ...request, ts: this.ts }), lockWaitMs, signal)
  }

  #resolving<T>(body: () => Awaitable<T>, lockWaitMs = this.options.lockWaitMs, signal?: LazySignal): Promise<T> {
    const read = () => timed(stagesOf(signal), 'readMs', Promise.resolve(body()))
    return this.resolver.resolving(lockWaitMs, read, eitherSignal(this.options.signal, signal))
  }
}
