import type { KeyRange } from '../../bytes/key-range.js'
import { keyText } from '../../bytes/key-text.js'
import { OrderedKeys } from '../../bytes/ordered-keys.js'
import type { Lock } from '../../percolator/lock.js'
import type { Mutation } from '../../percolator/row.js'
import type { WriteRecord } from '../../percolator/write.js'
import type { Timestamp } from '../../timestamp.js'

export interface Row {
  readonly key: Uint8Array
  readonly lock: Lock | undefined
  /** Newest first. */
  readonly writes: readonly WriteRecord[]
  /** Long values, by start_ts. */
  readonly values: ReadonlyMap<Timestamp, Uint8Array>
}

interface StoredRow extends Row {
  lock: Lock | undefined
  readonly writes: WriteRecord[]
  readonly values: Map<Timestamp, Uint8Array>
}

/** Rows sorted by key. The mutations of one `apply` become visible at once, because nothing here awaits. */
export class RowTable {
  readonly #rows = new Map<string, StoredRow>()
  readonly #order = new OrderedKeys()
  readonly #locked = new Set<StoredRow>()
  /** The keys of `#locked`. */
  readonly #lockedOrder = new OrderedKeys()
  readonly #expiring = new Set<StoredRow>()

  get isEmpty(): boolean {
    return this.#rows.size === 0
  }
  get lockCount(): number {
    return this.#locked.size
  }
  /** Rows with a lock: those that have had one longest first. */
  get locked(): Iterable<Row> {
    return this.#locked
  }

  /** Rows that had a version that expires, in any order. */
  get expiring(): Iterable<Row> {
    return this.#expiring
  }

  get(key: Uint8Array): Row | undefined {
    return this.#rows.get(keyText(key))
  }

  /** The table must not change until the generator is consumed. */
  range(range: KeyRange, reverse = false): Generator<Row> {
    return this.#walk(this.#order, range, reverse)
  }

  /** Like `range`, of rows with a lock. It meets no other rows. */
  lockedRange(range: KeyRange): Generator<Row> {
    return this.#walk(this.#lockedOrder, range, false)
  }

  *#walk(order: OrderedKeys, { start, end }: KeyRange, reverse: boolean): Generator<Row> {
    const [from, to] = [start && keyText(start), end && keyText(end)]
    for (const text of order.range(from, to, reverse)) yield this.#rows.get(text) as Row
  }

  apply(mutations: readonly Mutation[]): void {
    for (const mutation of mutations) {
      const row = this.#row(mutation.key)
      this.#change(row, mutation)
      if (row.lock === undefined && row.writes.length === 0 && row.values.size === 0) this.delete(row.key)
    }
  }

  delete(key: Uint8Array): void {
    const text = keyText(key)
    const row = this.#rows.get(text)
    if (row !== undefined) this.#unlock(row)
    if (row !== undefined) this.#expiring.delete(row)
    if (this.#rows.delete(text)) this.#order.delete(text)
  }

  clear(): void {
    this.#rows.clear()
    this.#order.clear()
    this.#locked.clear()
    this.#lockedOrder.clear()
    this.#expiring.clear()
  }

  #row(key: Uint8Array): StoredRow {
    const text = keyText(key)
    let row = this.#rows.get(text)
    if (row === undefined) {
      row = { key: copyOf(key), lock: undefined, writes: [], values: new Map() }
      this.#rows.set(text, row)
      this.#order.add(text)
    }
    return row
  }

  #lock(row: StoredRow): void {
    if (this.#locked.has(row)) return
    this.#locked.add(row)
    this.#lockedOrder.add(keyText(row.key))
  }

  #unlock(row: StoredRow): void {
    if (this.#locked.delete(row)) this.#lockedOrder.delete(keyText(row.key))
  }

  #change(row: StoredRow, mutation: Mutation): void {
    switch (mutation.type) {
      case 'put-lock':
        this.#lock(row)
        row.lock = copyOfLock(mutation.lock)
        break
      case 'delete-lock':
        this.#unlock(row)
        row.lock = undefined
        break
      case 'put-write': {
        const { shortValue, expireTs } = mutation.write
        if (expireTs !== 0) this.#expiring.add(row)
        const write = shortValue === undefined ? mutation.write : { ...mutation.write, shortValue: copyOf(shortValue) }
        const at = row.writes.findIndex(({ commitTs }) => commitTs <= write.commitTs)
        const isReplaced = row.writes[at]?.commitTs === write.commitTs
        row.writes.splice(at === -1 ? row.writes.length : at, isReplaced ? 1 : 0, write)
        break
      }
      case 'delete-write': {
        const at = row.writes.findIndex(({ commitTs }) => commitTs === mutation.commitTs)
        if (at !== -1) row.writes.splice(at, 1)
        break
      }
      case 'put-value':
        row.values.set(mutation.startTs, copyOf(mutation.value))
        break
      case 'delete-value':
        row.values.delete(mutation.startTs)
    }
  }
}

export function valueOfPut(row: Row | undefined, { shortValue, startTs }: WriteRecord): Uint8Array {
  const value = shortValue ?? row?.values.get(startTs)
  if (value === undefined) throw new Error(`the value written at ${startTs} is missing`)
  return value
}

function copyOfLock(lock: Lock): Lock {
  const { primary, shortValue, secondaries } = lock
  const copies = { primary: copyOf(primary), secondaries: secondaries.map(copyOf) }
  return { ...lock, ...copies, shortValue: shortValue && copyOf(shortValue) }
}

/** Bytes of a request are a view of its body, which must not be kept in memory. */
function copyOf(bytes: Uint8Array): Uint8Array {
  return Buffer.from(bytes)
}
