import { afterPrefix, type KeyRange } from '../bytes/key-range.js'
import { keyText } from '../bytes/key-text.js'

interface Item<T> {
  readonly start: string
  /** undefined: open. */
  readonly end: string | undefined
  readonly value: T
}

/**
 * Finds the ranges that contain a key. Ranges of a common prefix are found by a look-up per length of prefix; the others are
 * tried one after another.
 */
export class RangeIndex<T> {
  /** By length of the prefix, then by the prefix. */
  readonly #prefixes = new Map<number, Map<string, T[]>>()
  readonly #others: Item<T>[] = []
  #size = 0

  get size(): number {
    return this.#size
  }

  add({ start, end }: KeyRange, value: T): void {
    this.#size++
    const prefix = prefixOf(start, end)
    if (prefix === undefined) {
      this.#others.push({ start: start === undefined ? '' : keyText(start), end: end && keyText(end), value })
      return
    }
    const ofLength = this.#prefixes.get(prefix.length) ?? new Map<string, T[]>()
    this.#prefixes.set(prefix.length, ofLength)
    const values = ofLength.get(prefix)
    if (values === undefined) ofLength.set(prefix, [value])
    else values.push(value)
  }

  /** Removes a value that was added with this range. */
  remove({ start, end }: KeyRange, value: T): void {
    const prefix = prefixOf(start, end)
    if (prefix === undefined) {
      const at = this.#others.findIndex((item) => item.value === value)
      if (at === -1) return
      this.#others.splice(at, 1)
    } else {
      const ofLength = this.#prefixes.get(prefix.length)
      const values = ofLength?.get(prefix)
      const at = values?.indexOf(value) ?? -1
      if (ofLength === undefined || values === undefined || at === -1) return
      values.splice(at, 1)
      if (values.length === 0) ofLength.delete(prefix)
      if (ofLength.size === 0) this.#prefixes.delete(prefix.length)
    }
    this.#size--
  }

  /** @param text the key, as `keyText`. @returns the values of all ranges that contain it. */
  at(text: string): readonly T[] {
    if (this.#size === 0) return NOTHING as readonly T[]
    let found: T[] | undefined
    for (const [length, ofLength] of this.#prefixes) {
      if (length > text.length) continue
      const values = ofLength.get(length === text.length ? text : text.slice(0, length))
      if (values !== undefined) found = found === undefined ? values : [...found, ...values]
    }
    for (const { start, end, value } of this.#others)
      if (text >= start && (end === undefined || text < end)) found = found === undefined ? [value] : [...found, value]
    return found ?? (NOTHING as readonly T[])
  }
}

const NOTHING: readonly unknown[] = []

/** The prefix whose keys are exactly those of the range, as `keyText`; undefined when there is none. */
function prefixOf(start: Uint8Array | undefined, end: Uint8Array | undefined): string | undefined {
  if (start === undefined || start.length === 0) return end === undefined ? '' : undefined
  const after = afterPrefix(start)
  const isPrefix = after === undefined ? end === undefined : end !== undefined && keyText(after) === keyText(end)
  return isPrefix ? keyText(start) : undefined
}

export function contains({ start, end }: KeyRange, key: Uint8Array): boolean {
  const text = keyText(key)
  return (start === undefined || text >= keyText(start)) && (end === undefined || text < keyText(end))
}
