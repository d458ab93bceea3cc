import { KvError } from '../errors/kv-error.js'
import type { SystemName, SystemRecords } from './system-records.js'

/** Tries of a change while other servers change the same record. */
const TRIES_MAX = 20

/** Records of one kind. */
export interface RecordKind<T> {
  readonly prefix: SystemName
  /** On a store that several servers share, no two values of a record are equal. */
  readonly encode: (value: T) => Uint8Array
  readonly decode: (name: string, record: Uint8Array) => T
}

interface Known<T> {
  readonly value: T
  /** When this process wrote it, or learned of it: see `load`. */
  readonly at: number
}

/**
 * Records of one kind that are few enough for memory. Of a store that several servers share, memory has what this one has last read or
 * written.
 */
export class RecordTable<T> {
  readonly #system: SystemRecords
  readonly #kind: RecordKind<T>
  readonly #known = new Map<string, Known<T>>()
  /** By name, what a write that has failed was to leave: whether it stands is known once the record is read. */
  readonly #inDoubt = new Map<string, T | undefined>()
  #arriving = 0
  #moment = 0

  constructor(system: SystemRecords, kind: RecordKind<T>) {
    this.#system = system
    this.#kind = kind
  }

  /** With those that are being written. */
  get size(): number {
    return this.#known.size + this.#arriving
  }

  get(name: string): T | undefined {
    return this.#known.get(name)?.value
  }

  *values(): Generator<T, void> {
    for (const { value } of this.#known.values()) yield value
  }

  /** `values`, and what may stand besides, because it is being written or that write has failed. */
  *possible(): Generator<T, void> {
    yield* this.values()
    for (const value of this.#inDoubt.values()) if (value !== undefined) yield value
  }

  /** Reads all records: at the start, and where other servers may have changed some. */
  async load(): Promise<void> {
    const began = ++this.#moment
    const { prefix, decode } = this.#kind
    const found = await this.#system.list(prefix)
    // What this process has written meanwhile may be missing in what was read.
    const isOlder = (name: string): boolean => (this.#known.get(name)?.at ?? 0) < began
    for (const name of [...this.#known.keys()])
      if (!found.has(this.#recordOf(name)) && isOlder(name)) this.#known.delete(name)
    for (const [record, bytes] of found) {
      const name = record.slice(prefix.length)
      if (isOlder(name)) this.#note(name, decode(name, bytes))
    }
  }

  /**
   * Changes one record. Changes of this process run one after the other, and others are not overwritten.
   * @param decide what the record is to be; undefined removes it. It is given what stands, perhaps again after another server was faster.
   *   What it throws is thrown, and nothing is changed.
   * @throws KvError `storage_unavailable`: it may be done or not.
   */
  change<D extends T | undefined>(name: string, decide: (present: T | undefined) => D): Promise<D> {
    const record = this.#recordOf(name)
    const isNew = !this.#known.has(name)
    if (isNew) this.#arriving++
    const changing = this.#system.hold([record], async () => {
      for (let tries = 1; tries <= TRIES_MAX; tries++) {
        const { bytes, value } = await this.#read(name)
        const wanted = decide(value)
        if (wanted === value || (await this.#replace(name, bytes, wanted))) return wanted
      }
      throw new KvError('overloaded', `other servers change ${record} at the moment`, {})
    })
    return changing.finally(() => {
      if (isNew) this.#arriving--
    })
  }

  async #read(name: string): Promise<{ readonly bytes: Uint8Array | undefined; readonly value: T | undefined }> {
    const bytes = await this.#system.get(this.#recordOf(name))
    const value = bytes && this.#kind.decode(name, bytes)
    this.#note(name, value)
    return { bytes, value }
  }

  async #replace(name: string, before: Uint8Array | undefined, wanted: T | undefined): Promise<boolean> {
    this.#inDoubt.set(name, wanted)
    try {
      const isDone = await this.#system.replace(this.#recordOf(name), before, wanted && this.#kind.encode(wanted))
      if (isDone) this.#note(name, wanted)
      else this.#inDoubt.delete(name)
      return isDone
    } catch (error) {
      await this.#read(name).catch(() => {}) // Later, where that fails too.
      throw error
    }
  }

  /** The record is known to be so. */
  #note(name: string, value: T | undefined): void {
    this.#inDoubt.delete(name)
    if (value === undefined) this.#known.delete(name)
    else this.#known.set(name, { value, at: ++this.#moment })
  }

  #recordOf(name: string): SystemName {
    return `${this.#kind.prefix}${name}` as SystemName
  }
}
