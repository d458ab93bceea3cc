import type { KeyRange, Pair, PrewriteMutation, ScanAnswer } from '../percolator/api.js'
import { KvError } from '../percolator/errors.js'
import { keyText } from '../percolator/key-text.js'
import type { Timestamp } from '../percolator/timestamp.js'

interface BufferedWrite {
  readonly key: Uint8Array
  /** undefined: deleted. */
  readonly value: Uint8Array | undefined
}

/** A pair of a merged scan: no `commitTs` for the transaction's own write. */
export type MergedPair = Omit<Pair, 'commitTs'> & { readonly commitTs?: Timestamp }

export interface MergedScan {
  readonly pairs: readonly MergedPair[]
  /** When a bound on bytes ended the scan: the last key that it looked at; there may be more pairs beyond. */
  readonly cutAfter?: Uint8Array | undefined
}

export interface ScanOrder extends KeyRange {
  readonly limit: number
  readonly reverse: boolean
  readonly keyOnly: boolean
}

/** A transaction's writes before it commits, and its reads of them. The last write of a key is the one that counts. */
export class WriteBuffer {
  readonly #writes = new Map<string, BufferedWrite>()
  #bytes = 0
  /** While `atomically` runs: what stood under each key that it changed. */
  #undo: Map<string, BufferedWrite | undefined> | undefined

  /** @param bytesMax of keys and values. */
  constructor(readonly bytesMax = Number.POSITIVE_INFINITY) {}

  /** Keys. */
  get size(): number {
    return this.#writes.size
  }
  /** Of keys and values. */
  get bytes(): number {
    return this.#bytes
  }

  get(key: Uint8Array): BufferedWrite | undefined {
    return this.#writes.size === 0 ? undefined : this.#writes.get(keyText(key))
  }

  put(key: Uint8Array, value: Uint8Array): void {
    this.#set({ key, value })
  }

  delete(key: Uint8Array): void {
    this.#set({ key, value: undefined })
  }

  /** Runs writes of which either all are kept or, where `body` throws, none. Not to be nested. */
  async atomically<T>(body: () => Promise<T>): Promise<T> {
    const undo = new Map<string, BufferedWrite | undefined>()
    this.#undo = undo
    try {
      return await body()
    } catch (error) {
      this.#undo = undefined
      for (const [text, before] of undo) this.#replace(text, before)
      throw error
    } finally {
      this.#undo = undefined
    }
  }

  /** @throws KvError `payload_too_large` */
  #set(write: BufferedWrite): void {
    const text = keyText(write.key)
    const before = this.#writes.get(text)
    if (this.#bytes - bytesOf(before) + bytesOf(write) > this.bytesMax) {
      const detail = `the transaction would write over ${this.bytesMax} bytes of keys and values`
      throw new KvError('payload_too_large', detail, { field: 'value', limit: this.bytesMax })
    }
    if (this.#undo?.has(text) === false) this.#undo.set(text, before)
    this.#replace(text, write)
  }

  #replace(text: string, write: BufferedWrite | undefined): void {
    this.#bytes += bytesOf(write) - bytesOf(this.#writes.get(text))
    if (write === undefined) this.#writes.delete(text)
    else this.#writes.set(text, write)
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
  async mergeScan(request: ScanOrder, scan: (limit: number) => Promise<ScanAnswer>): Promise<MergedScan> {
    const { limit, reverse, keyOnly } = request
    const own = this.#inRange(request)
    // Each own write hides at most one pair of the snapshot.
    const { pairs, isCut = false } = await scan(limit + own.length)
    const cutAfter = isCut ? pairs.at(-1)?.key : undefined
    if (own.length === 0) return { pairs, cutAfter }
    const isBefore = (a: string, b: string): boolean => a < b !== reverse
    const end = cutAfter && keyText(cutAfter) // Beyond it the snapshot is not known.
    const merged = new Map<string, MergedPair>(pairs.map((pair) => [keyText(pair.key), pair]))
    for (const [text, { key, value }] of own) {
      if (end !== undefined && isBefore(end, text)) continue
      if (value === undefined) merged.delete(text)
      else merged.set(text, keyOnly ? { key } : { key, value })
    }
    const sorted = [...merged].sort(([a], [b]) => (isBefore(a, b) ? -1 : 1)).map(([, pair]) => pair)
    return sorted.length > limit ? { pairs: sorted.slice(0, limit) } : { pairs: sorted, cutAfter }
  }

  #inRange({ start, end }: KeyRange): [string, BufferedWrite][] {
    const from = start && keyText(start)
    const to = end && keyText(end)
    return [...this.#writes].filter(([text]) => (from === undefined || text >= from) && (to === undefined || text < to))
  }
}

function bytesOf(write: BufferedWrite | undefined): number {
  return write === undefined ? 0 : write.key.length + (write.value?.length ?? 0)
}
