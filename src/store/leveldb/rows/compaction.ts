import type { KeyRange } from '../../../bytes/key-range.js'
import { afterKey } from '../../../bytes/key-range.js'
import type { Engine } from '../engine/engine.js'
import { CF_DEFAULT, CF_LOCK, CF_NEWEST, CF_WRITE, keyRange } from '../records/keyspace.js'

/** Least garbage that justifies rewriting its range: two of LevelDB's table files. */
const WORTH_BYTES = 4 * 1024 * 1024
/** Approximate size of a removed record with a short value, and its tombstone. */
const RECORD_BYTES = 128
/** Records walked between two decisions whether to compact. */
const STRETCH_RECORDS = 200_000

const FAMILIES = [CF_DEFAULT, CF_LOCK, CF_NEWEST, CF_WRITE] as const
/** Above the first byte of every record. */
const END = Buffer.of(0xff)

export async function compact(engine: Engine, { start, end }: KeyRange): Promise<void> {
  if (start === undefined && end === undefined) return engine.compactRange(Buffer.alloc(0), END)
  for (const cf of FAMILIES) {
    const { gte, lt } = keyRange(cf, start, end)
    await engine.compactRange(gte, lt)
  }
}

export function diskBytes(engine: Engine): Promise<number> {
  return engine.approximateSize(Buffer.alloc(0), END)
}

export interface Walked {
  readonly records: number
  readonly removed: number
  readonly longKept: number
  readonly longRemoved: number
}

/**
 * LevelDB frees deleted records only when it rewrites the files that hold them, which for old versions may never happen. This
 * estimates the garbage of a collection per stretch of keys, and compacts a stretch that frees enough.
 */
export class Compaction {
  readonly #engine: Engine
  #start: Uint8Array | undefined
  #end: Uint8Array | undefined
  #records = 0
  #removed = 0
  #longKept = 0
  #longRemoved = 0

  constructor(engine: Engine) {
    this.#engine = engine
  }

  /** Call with ascending keys. */
  note(key: Uint8Array, { records, removed, longKept, longRemoved }: Walked): void {
    this.#records += records
    this.#longKept += longKept
    if (removed === 0) return
    this.#start ??= key
    this.#end = key
    this.#removed += removed
    this.#longRemoved += longRemoved
  }

  get isDue(): boolean {
    return this.#records >= STRETCH_RECORDS
  }

  /** Compacts the keys noted since the last call, if they hold enough garbage. */
  async compactNoted(): Promise<void> {
    const [start, end] = [this.#start, this.#end]
    const garbage = start === undefined || end === undefined ? 0 : await this.#garbageBytes(start, end)
    this.#start = undefined
    this.#end = undefined
    this.#records = this.#removed = this.#longKept = this.#longRemoved = 0
    if (garbage >= WORTH_BYTES) await compact(this.#engine, { start, end: end && afterKey(end) })
  }

  async #garbageBytes(start: Uint8Array, end: Uint8Array): Promise<number> {
    const short = RECORD_BYTES * this.#removed
    if (this.#longRemoved === 0) return short
    const { gte, lt } = keyRange(CF_DEFAULT, start, afterKey(end))
    const long = await this.#engine.approximateSize(gte, lt)
    return short + (long * this.#longRemoved) / (this.#longRemoved + this.#longKept)
  }
}
