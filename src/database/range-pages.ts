import { afterKey } from '../bytes/key-range.js'
import type { MergedPair, MergedScan, ScanOrder } from '../coordinator/write-buffer.js'
import { SCAN_PAGE, STREAM_PAGE_BYTES } from '../limits.js'

export type ReadPage = (order: ScanOrder) => Promise<MergedScan>

export interface RangeOrder extends Omit<ScanOrder, 'limit' | 'bytesMax'> {
  /** The last key of an earlier page. The scan continues after it. */
  readonly after?: Uint8Array | undefined
}

export function readPage(read: ReadPage, range: RangeOrder, limit: number, bytesMax: number): Promise<MergedScan> {
  const { reverse, keyOnly, after } = range
  const start = after !== undefined && !reverse ? afterKey(after) : range.start
  const end = after !== undefined && reverse ? after : range.end
  return read({ start, end, reverse, keyOnly, limit, bytesMax })
}

/** Yields up to `limit` pairs of a range, in pages. The next page is read while the caller uses the present one. */
export async function* pagesOf(
  read: ReadPage,
  range: RangeOrder,
  limit: number,
): AsyncGenerator<readonly MergedPair[], void> {
  const pageAfter = (after: Uint8Array | undefined, left: number): Promise<MergedScan> => {
    const reading = readPage(read, { ...range, after }, Math.min(left, SCAN_PAGE), STREAM_PAGE_BYTES)
    reading.catch(() => {}) // A caller that stops early never awaits this page.
    return reading
  }
  let left = limit
  let next: Promise<MergedScan> | undefined = pageAfter(range.after, left)
  while (next !== undefined) {
    const { pairs, cutAfter } = (await next) as MergedScan
    const isWhole = cutAfter === undefined && pairs.length < Math.min(left, SCAN_PAGE)
    left -= pairs.length
    const after = cutAfter ?? pairs.at(-1)?.key
    next = isWhole || left <= 0 ? undefined : pageAfter(after, left)
    if (pairs.length > 0) yield pairs
  }
}

export async function countPairs(read: ReadPage, range: RangeOrder): Promise<number> {
  let total = 0
  for await (const pairs of pagesOf(read, { ...range, keyOnly: true }, Number.POSITIVE_INFINITY)) total += pairs.length
  return total
}
