import { afterPrefix, type KeyRange } from '../bytes/key-range.js'
import { keyText } from '../bytes/key-text.js'

interface Bucket<T> {
  /** Values of the ranges that consist of all keys with this prefix. */
  readonly prefixes: T[]
  readonly others: Item<T>[]
}

interface Item<T> {
  readonly start: string
  /** undefined: open. */
  readonly end: string | undefined
  readonly value: T
}

/**
 * Finds the ranges that contain a key. Single keys and ranges of one prefix take one look-up per length of prefix. Other ranges
 * are tried one by one, if the key begins like all of their keys.
 */
export class RangeIndex<T> {
  readonly #keys = new Map<string, T[]>()
  /** By length of the prefix, then by the prefix. */
  readonly #buckets = new Map<number, Map<string, Bucket<T>>>()
  #size = 0

  get size(): number {
    return this.#size
  }

  add(range: KeyRange, value: T): void {
    this.#size++
    const key = onlyKeyOf(range)
    if (key !== undefined) {
      const values = this.#keys.get(key)
      if (values === undefined) this.#keys.set(key, [value])
      else values.push(value)
      return
    }
    const { text, bounds } = beginningOf(range)
    const ofLength = this.#buckets.get(text.length) ?? new Map<string, Bucket<T>>()
    this.#buckets.set(text.length, ofLength)
    const bucket = ofLength.get(text) ?? { prefixes: [], others: [] }
    ofLength.set(text, bucket)
    if (bounds === undefined) bucket.prefixes.push(value)
    else bucket.others.push({ ...bounds, value })
  }

  remove(range: KeyRange, value: T): void {
    const key = onlyKeyOf(range)
    if (key !== undefined) {
      const values = this.#keys.get(key)
      if (values === undefined || !removeOne(values, (each) => each === value)) return
      if (values.length === 0) this.#keys.delete(key)
      this.#size--
      return
    }
    const { text, bounds } = beginningOf(range)
    const ofLength = this.#buckets.get(text.length)
    const bucket = ofLength?.get(text)
    if (ofLength === undefined || bucket === undefined) return
    const isRemoved =
      bounds === undefined
        ? removeOne(bucket.prefixes, (each) => each === value)
        : removeOne(bucket.others, (each) => each.value === value)
    if (!isRemoved) return
    this.#size--
    if (bucket.prefixes.length + bucket.others.length === 0) ofLength.delete(text)
    if (ofLength.size === 0) this.#buckets.delete(text.length)
  }

  /** @param text the key, as `keyText`. @returns the values of all ranges that contain it. */
  at(text: string): readonly T[] {
    if (this.#size === 0) return NOTHING as readonly T[]
    let found = this.#keys.get(text) ?? (NOTHING as readonly T[])
    let copy: T[] | undefined
    const add = (values: readonly T[]): void => {
      if (found.length === 0) found = values
      else if (values.length > 0) {
        if (copy === undefined) found = copy = [...found]
        for (const value of values) copy.push(value)
      }
    }
    for (const [length, ofLength] of this.#buckets) {
      if (length > text.length) continue
      const bucket = ofLength.get(length === text.length ? text : text.slice(0, length))
      if (bucket === undefined) continue
      add(bucket.prefixes)
      if (bucket.others.length === 0) continue
      const others: T[] = []
      for (const { start, end, value } of bucket.others)
        if (text >= start && (end === undefined || text < end)) others.push(value)
      add(others)
    }
    return found
  }
}

const NOTHING: readonly unknown[] = []

function removeOne<T>(items: T[], isIt: (item: T) => boolean): boolean {
  const at = items.findIndex(isIt)
  if (at !== -1) items.splice(at, 1)
  return at !== -1
}

function onlyKeyOf({ start, end }: KeyRange): string | undefined {
  if (start === undefined || end === undefined || end.length !== start.length + 1 || end.at(-1) !== 0) return undefined
  const key = keyText(start)
  return keyText(end).startsWith(key) ? key : undefined
}

/**
 * @returns the longest common prefix of all keys of the range, as `keyText`. `bounds` is set when not all keys with this prefix
 *   are in the range.
 */
function beginningOf({ start, end }: KeyRange): {
  readonly text: string
  readonly bounds?: { readonly start: string; readonly end: string | undefined }
} {
  const prefix = prefixOf(start, end)
  if (prefix !== undefined) return { text: prefix }
  const bounds = { start: start === undefined ? '' : keyText(start), end: end && keyText(end) }
  let common = 0
  if (bounds.end !== undefined)
    while (common < bounds.start.length && bounds.start[common] === bounds.end[common]) common++
  return { text: bounds.start.slice(0, common), bounds }
}

/** @returns the prefix whose keys are exactly those of the range, as `keyText`. */
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
