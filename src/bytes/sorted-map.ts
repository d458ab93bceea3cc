import { TimeSlicer } from '../event-loop/time-slicer.js'
import { OrderedKeys } from './ordered-keys.js'

export interface PageRequest {
  /** Only names that begin with it. Default: all. */
  readonly prefix?: string | undefined
  /** Only names above this one. */
  readonly after?: string | undefined
  readonly limit: number
}

export interface Page<T> {
  /** In order of names. */
  readonly items: readonly T[]
  /** The last name; undefined on the last page. */
  readonly next: string | undefined
}

/** A map whose names are sorted. The cost of a page depends on its entries, not on the size of the map. */
export class SortedMap<V> extends Map<string, V> {
  readonly #names = new OrderedKeys()

  override set(name: string, value: V): this {
    if (!this.has(name)) this.#names.add(name)
    return super.set(name, value)
  }

  override delete(name: string): boolean {
    this.#names.delete(name)
    return super.delete(name)
  }

  override clear(): void {
    this.#names.clear()
    super.clear()
  }

  /**
   * Runs in slices; the map may change meanwhile. @param isShown entries for which it returns false are skipped. Default: all
   * are shown.
   */
  async page({ prefix = '', after, limit }: PageRequest, isShown?: (value: V) => boolean): Promise<Page<V>> {
    const items: V[] = []
    const slicer = new TimeSlicer()
    let next: string | undefined
    let from = lowestAfter(after, prefix)
    for (;;) {
      const name = this.#names.first(from)
      if (name === undefined || !name.startsWith(prefix)) return { items, next: undefined }
      const value = this.get(name) as V
      if (isShown?.(value) !== false) {
        if (items.length === limit) return { items, next }
        items.push(value)
        next = name
      }
      from = lowestAfter(name)
      await slicer.next()
    }
  }
}

/** The lowest text above `after` that begins with `prefix`, or is above all texts that do. */
export function lowestAfter(after: string | undefined, prefix = ''): string {
  return after === undefined || after < prefix ? prefix : `${after}\0`
}
