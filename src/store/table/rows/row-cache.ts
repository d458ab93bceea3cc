import { keyText } from '../../../bytes/key-text.js'
import type { KnownRow } from './known-row.js'

/** Memory of a row beyond the bytes of its values: key, record objects, the entry itself. */
const ROW_BYTES = 600
const WRITE_BYTES = 150

interface Entry {
  readonly row: KnownRow
  readonly bytes: number
}

/**
 * Rows that this process has read or written lately. Other processes may have changed them since, so a cached row is a guess,
 * which only a conditional mutation proves.
 */
export class RowCache {
  /** Least recently used first. */
  readonly #entries = new Map<string, Entry>()
  readonly #bytesMax: number
  #bytes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  get bytes(): number {
    return this.#bytes
  }

  get(key: Uint8Array): KnownRow | undefined {
    const text = keyText(key)
    const found = this.#entries.get(text)
    if (found === undefined) return undefined
    this.#entries.delete(text)
    this.#entries.set(text, found)
    return found.row
  }

  set(given: KnownRow): void {
    const text = keyText(given.key)
    const row = detached(given, this.#entries.get(text)?.row)
    this.#remove(text)
    const bytes = knownRowBytes(row)
    this.#entries.set(text, { row, bytes })
    this.#bytes += bytes
    for (const oldest of this.#entries.keys()) {
      if (this.#bytes <= this.#bytesMax) break
      this.#remove(oldest)
    }
  }

  delete(key: Uint8Array): void {
    this.#remove(keyText(key))
  }

  clear(): void {
    this.#entries.clear()
    this.#bytes = 0
  }

  #remove(text: string): void {
    const found = this.#entries.get(text)
    if (found === undefined) return
    this.#entries.delete(text)
    this.#bytes -= found.bytes
  }
}

/**
 * Copies views of requests and answers, each of which would keep its whole buffer in memory.
 * @param cached the row before, whose parts are copies already.
 */
function detached(row: KnownRow, cached: KnownRow | undefined): KnownRow {
  const { key, lock, writes } = row
  return {
    ...row,
    key: cached?.key ?? own(key),
    lock: lock && {
      ...lock,
      primary: own(lock.primary),
      shortValue: lock.shortValue && own(lock.shortValue),
      secondaries: lock.secondaries.map(own),
    },
    writes: writes.map((write) =>
      write.shortValue === undefined || cached?.writes.includes(write)
        ? write
        : { ...write, shortValue: own(write.shortValue) },
    ),
  }
}

function own(bytes: Uint8Array): Uint8Array {
  const copy = Buffer.allocUnsafeSlow(bytes.length) // Outside of Node's pool.
  copy.set(bytes)
  return copy
}

function knownRowBytes({ key, lock, writes, garbage }: KnownRow): number {
  let bytes = ROW_BYTES + 2 * key.length + (lock?.shortValue?.length ?? 0) + (lock?.primary.length ?? 0)
  for (const secondary of lock?.secondaries ?? []) bytes += secondary.length
  for (const { shortValue } of writes) bytes += WRITE_BYTES + (shortValue?.length ?? 0)
  bytes += WRITE_BYTES * garbage.length
  return bytes
}
