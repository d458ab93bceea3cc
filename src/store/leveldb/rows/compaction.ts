import type { KeyRange } from '../../../bytes/key-range.js'
import { afterKey } from '../../../bytes/key-range.js'
import type { Engine } from '../engine/engine.js'
import { CF_DEFAULT, CF_LOCK, CF_NEWEST, CF_WRITE, keyRange } from '../records/keyspace.js'

/** Garbage of this size is worth rewriting what lies around it: two of LevelDB's table files. */
const WORTH_BYTES = 4 * 1024 * 1024
/** A removed record and its tombstone, about, where values are short. */
const RECORD_BYTES = 128
/** Records walked over before what was removed among them is weighed. */
const STRETCH_RECORDS = 200_000

const FAMILIES = [CF_DEFAULT, CF_LOCK, CF_NEWEST, CF_WRITE] as const
/** Above the prefix of every record. */
const END = Buffer.of(0xff)

/** Everything, or what belongs to a range of keys. */
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

/** What a walk over CF_WRITE met of one key. */
export interface Walked {
  readonly records: number
  readonly removed: number
  /** Puts with values in CF_DEFAULT: kept, and removed. */
  readonly longKept: number
  readonly longRemoved: number
}

/**
 * LevelDB drops what is deleted when it happens to rewrite the files around it, which for old versions may be never. This
 * weighs what a collection removed, a stretch of keys at a time, and has it rewritten where that gives back enough.
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

  /** @param key ascending. */
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

  /** Compacts what was noted since the last time, if it is worth it. */
  async settle(): Promise<void> {
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
