import { AbstractIterator } from 'abstract-level'
import type { KeyRange } from '../bytes/key-range.js'
import { rangeAfter } from '../client/key-range.js'
import { LevelError, levelError } from './level-error.js'
import { isEmpty, keyRangeOf, type LevelRange, prefixed, rangeFrom, scanLimit } from './level-range.js'
import type { Reader, ReadPair } from './reader.js'

export interface LevelIteratorOptions extends LevelRange {
  readonly limit: number
  readonly reverse: boolean
  readonly values?: boolean
  readonly signal?: AbortSignal | null | undefined
}

export interface IteratorParts {
  readonly prefix: Uint8Array
  /** What is read. The promise may still wait for the timestamp of a snapshot. */
  readonly reader: Promise<Reader>
  /** Whether the reader is a transaction, whose errors must stay as they are: they tell it to run again. */
  readonly isInTxn: boolean
}

export class LevelIterator extends AbstractIterator<unknown, unknown, unknown> {
  readonly #options: LevelIteratorOptions
  readonly #parts: IteratorParts
  readonly #range: KeyRange
  /** The keys that are still to come. */
  #left: KeyRange
  #pairs: AsyncGenerator<ReadPair, void, undefined> | undefined

  constructor(level: object, options: LevelIteratorOptions, parts: IteratorParts) {
    super(level, options as object)
    this.#options = options
    this.#parts = parts
    this.#range = keyRangeOf(parts.prefix, options)
    this.#left = this.#range
  }

  async _next(): Promise<[Uint8Array, Uint8Array | undefined] | undefined> {
    const { prefix, isInTxn } = this.#parts
    const { reverse, signal } = this.#options
    try {
      this.#pairs ??= this.#scan(await this.#parts.reader)
      if (signal?.aborted) throw signal.reason
      const { value: pair } = await this.#pairs.next()
      if (!pair) return undefined
      this.#left = rangeAfter(this.#left, pair.key, reverse)
      return [pair.key.subarray(prefix.length), pair.value]
    } catch (error) {
      this.#pairs = undefined // The next call reads on from here: a generator that has failed would say that this is the end.
      if (isInTxn) throw error
      if (signal?.aborted) throw new LevelError('LEVEL_ABORTED', 'The iterator has been aborted', { cause: error })
      throw levelError(error)
    }
  }

  async *#scan(reader: Reader): AsyncGenerator<ReadPair, void, undefined> {
    if (isEmpty(this.#left)) return
    const { reverse, limit, values, signal } = this.#options
    yield* reader.scan({
      ...this.#left,
      as: 'bytes',
      reverse,
      keysOnly: values === false,
      limit: scanLimit(limit),
      ...(signal && !this.#parts.isInTxn && { signal }),
    })
  }

  _seek(target: Uint8Array): void {
    void this.#pairs?.return() // It waits at a pair, where it holds nothing that could fail.
    this.#pairs = undefined
    this.#left = rangeFrom(this.#range, prefixed(this.#parts.prefix, target), this.#options.reverse)
  }

  async _close(): Promise<void> {
    await this.#pairs?.return()
  }
}
