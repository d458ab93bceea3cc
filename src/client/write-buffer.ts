import type { KeyRange, Pair, PrewriteMutation } from '../percolator/api.js'
import { keyText } from '../percolator/key-text.js'
import type { Timestamp } from '../percolator/timestamp.js'

interface BufferedWrite {
  readonly key: Uint8Array
  /** undefined: deleted. */
  readonly value: Uint8Array | undefined
}

/** A pair of a merged scan: no `commitTs` for the transaction's own write. */
export type MergedPair = Omit<Pair, 'commitTs'> & { readonly commitTs?: Timestamp }

/** A transaction's writes before it commits, and its reads of them. The last write of a key is the one that counts. */
export class WriteBuffer {
  readonly #writes = new Map<string, BufferedWrite>()

  get(key: Uint8Array): BufferedWrite | undefined {
    return this.#writes.get(keyText(key))
  }

  put(key: Uint8Array, value: Uint8Array): void {
    this.#writes.set(keyText(key), { key, value })
  }

  delete(key: Uint8Array): void {
    this.#writes.set(keyText(key), { key, value: undefined })
  }

  mutations(): PrewriteMutation[] {
    return [...this.#writes.values()].map(({ key, value }) =>
      value === undefined ? { op: 'delete', key } : { op: 'put', key, value },
    )
  }

  /**
   * A scan that sees the snapshot with these writes in it.
   * @param scan reads the snapshot, in the range and order of `request`.
   */
  async mergeScan(
    request: KeyRange & { readonly limit: number; readonly reverse: boolean; readonly keyOnly: boolean },
    scan: (limit: number) => Promise<readonly Pair[]>,
  ): Promise<MergedPair[]> {
    const { start, end, limit, reverse, keyOnly } = request
    const from = start && keyText(start)
    const to = end && keyText(end)
    const own = [...this.#writes].filter(
      ([text]) => (from === undefined || text >= from) && (to === undefined || text < to),
    )
    if (own.length === 0) return [...(await scan(limit))]
    // Each own write hides at most one pair of the snapshot.
    const merged = new Map<string, MergedPair>(
      (await scan(limit + own.length)).map((pair) => [keyText(pair.key), pair]),
    )
    for (const [text, { key, value }] of own) {
      if (value === undefined) merged.delete(text)
      else merged.set(text, keyOnly ? { key } : { key, value })
    }
    const sorted = [...merged].sort(([a], [b]) => (a < b === reverse ? 1 : -1))
    return sorted.slice(0, limit).map(([, pair]) => pair)
  }
}
