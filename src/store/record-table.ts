import { type Page, type PageRequest, SortedMap } from '../bytes/sorted-map.js'
import { KvError } from '../errors/kv-error.js'
import type { Awaitable } from '../event-loop/after.js'
import type { SystemName, SystemRecords, SystemWrite } from './system-records.js'

/** Limit on tries of a change while other servers change the same record. */
const TRIES_MAX = 20

export interface RecordKind<T> {
  readonly prefix: SystemName
  /** On a store that several servers share, no two values of a record are equal. */
  readonly encode: (value: T) => Uint8Array
  /** @returns undefined for a record of another kind, whose name has the same beginning. */
  readonly decode: (name: string, record: Uint8Array) => T | undefined
}

interface Known<T> {
  readonly value: T
  readonly bytes: Uint8Array
}

/**
 * Records of one kind that are few enough for memory. On a store that several servers share, memory holds what this server has
 * last read or written.
 */
export class RecordTable<T> {
  readonly #system: SystemRecords
  readonly #kind: RecordKind<T>
  readonly #known = new SortedMap<Known<T>>()
  /** By name, the value that a failed write may have left. Decided when the record is read. */
  readonly #inDoubt = new Map<string, T | undefined>()
  readonly #changing = new Map<string, number>()
  /** Per running `load`, the names of records that became known otherwise since it began. */
  readonly #loads = new Set<Set<string>>()
  readonly #onChange: (name: string, value: T | undefined) => void

  /** @param onChange called when a record turns out different, and after each own change. Must not throw. */
  constructor(
    system: SystemRecords,
    kind: RecordKind<T>,
    onChange: (name: string, value: T | undefined) => void = () => {},
  ) {
    this.#system = system
    this.#kind = kind
    this.#onChange = onChange
  }

  /** Counts records that are being written, or may exist after a failed write. */
  get size(): number {
    let size = this.#known.size
    for (const name of this.#changing.keys()) if (!this.#known.has(name)) size++
    for (const name of this.#inDoubt.keys()) if (!this.#known.has(name) && !this.#changing.has(name)) size++
    return size
  }

  get(name: string): T | undefined {
    return this.#known.get(name)?.value
  }

  *values(): Generator<T, void> {
    for (const { value } of this.#known.values()) yield value
  }

  /** `values`, and those that may exist after a failed or unfinished write. */
  *possible(): Generator<T, void> {
    yield* this.values()
    for (const value of this.#inDoubt.values()) if (value !== undefined) yield value
  }

  /** @param isShown returns false for values to skip. */
  async page(request: PageRequest, isShown: (value: T) => boolean): Promise<Page<T>> {
    const { items, next } = await this.#known.page(request, ({ value }) => isShown(value))
    return { items: items.map(({ value }) => value), next }
  }

  /**
   * Reads all records, at the start and when other servers may have changed some. @returns all records with the prefix, even of
   * other kinds.
   */
  async load(): Promise<ReadonlyMap<SystemName, Uint8Array>> {
    const { prefix } = this.#kind
    const newer = new Set<string>()
    this.#loads.add(newer)
    try {
      const found = await this.#system.list(prefix)
      for (const name of [...this.#known.keys()])
        if (!found.has(this.#recordOf(name)) && !newer.has(name)) this.#note(name, undefined)
      for (const [record, bytes] of found) {
        const name = record.slice(prefix.length)
        if (!newer.has(name)) this.#note(name, bytes)
      }
      return found
    } finally {
      this.#loads.delete(newer)
    }
  }

  /** Reads one record, which another server may have changed. */
  async refresh(name: string): Promise<T | undefined> {
    const { value } = await this.#system.hold([this.#recordOf(name)], () => this.#read(name))
    return value
  }

  /** Reads the records whose writes have failed. @throws KvError `storage_unavailable` */
  async readInDoubt(): Promise<void> {
    for (const name of [...this.#inDoubt.keys()])
      await this.#system.hold([this.#recordOf(name)], async () => {
        if (this.#inDoubt.has(name)) await this.#read(name)
      })
  }

  /** Call when the record was written in another way, while its latch is held. */
  written(name: string, value: T): void {
    this.#note(name, this.#kind.encode(value))
  }

  /**
   * Changes one record. Changes of this process run one after the other; changes of other servers are not overwritten.
   * @param decide returns the wanted value; undefined removes the record. It gets the present one, again if another server was
   *   faster. If it throws, nothing changes.
   * @param extraRecords see `SystemRecords.replace`.
   * @throws KvError `storage_unavailable`: the change may or may not be done.
   */
  async change<D extends T | undefined>(
    name: string,
    decide: (present: T | undefined) => Awaitable<D>,
    extraRecords: (wanted: D) => readonly SystemWrite[] = () => [],
  ): Promise<D> {
    const record = this.#recordOf(name)
    this.#changing.set(name, (this.#changing.get(name) ?? 0) + 1)
    try {
      return await this.#system.hold([record], async () => {
        for (let tries = 1; tries <= TRIES_MAX; tries++) {
          const { bytes, value } = await this.#read(name)
          const wanted = await decide(value)
          const writes = extraRecords(wanted)
          if (wanted === value && writes.length === 0) return wanted
          if (await this.#replace(name, bytes, wanted, writes)) return wanted
        }
        throw new KvError('overloaded', `other servers change ${record} at the moment`, {})
      })
    } finally {
      const left = (this.#changing.get(name) ?? 0) - 1
      if (left > 0) this.#changing.set(name, left)
      else this.#changing.delete(name)
    }
  }

  async #read(name: string): Promise<{ readonly bytes: Uint8Array | undefined; readonly value: T | undefined }> {
    const bytes = await this.#system.get(this.#recordOf(name))
    return { bytes, value: this.#note(name, bytes) }
  }

  async #replace(
    name: string,
    before: Uint8Array | undefined,
    wanted: T | undefined,
    extraRecords: readonly SystemWrite[],
  ): Promise<boolean> {
    this.#inDoubt.set(name, wanted)
    const bytes = wanted && this.#kind.encode(wanted)
    try {
      const isDone = await this.#system.replace(this.#recordOf(name), before, bytes, extraRecords)
      if (isDone) this.#note(name, bytes)
      else this.#inDoubt.delete(name)
      return isDone
    } catch (error) {
      await this.#read(name).catch(() => {}) // If that fails too, the record is read later.
      throw error
    }
  }

  #note(name: string, bytes: Uint8Array | undefined): T | undefined {
    for (const newer of this.#loads) newer.add(name)
    const wasInDoubt = this.#inDoubt.delete(name)
    const known = this.#known.get(name)
    const isSame = known !== undefined && bytes !== undefined && Buffer.compare(known.bytes, bytes) === 0
    const value = isSame ? known.value : bytes && this.#kind.decode(name, bytes)
    if (value === undefined || bytes === undefined) this.#known.delete(name)
    else this.#known.set(name, { value, bytes })
    if (wasInDoubt || value !== known?.value) this.#onChange(name, value)
    return value
  }

  #recordOf(name: string): SystemName {
    return `${this.#kind.prefix}${name}` as SystemName
  }
}
