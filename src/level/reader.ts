import type { ScanOptions } from '../client/index.js'

export interface ReadPair {
  readonly key: Uint8Array
  readonly value?: Uint8Array
}

/** What a database, a snapshot of it and a transaction in it have in common. */
export interface Reader {
  get(key: Uint8Array, options: { readonly as: 'bytes' }): Promise<Uint8Array | undefined>
  batchGet(keys: readonly Uint8Array[], options: { readonly as: 'bytes' }): Promise<(Uint8Array | undefined)[]>
  scan(options: ReaderScan): AsyncGenerator<ReadPair, void, undefined>
}

type ReaderScan = ScanOptions<'bytes', boolean> & {
  /** Must be absent in a transaction, which has its own. */
  readonly signal?: AbortSignal | undefined
}
