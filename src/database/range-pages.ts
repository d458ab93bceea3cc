import { afterKey } from '../bytes/key-range.js'
import type { MergedPair, MergedScan, ScanOrder } from '../coordinator/write-buffer.js'
import { SCAN_PAGE, STREAM_PAGE_BYTES } from '../limits.js'

/** Reads a page of a range: of a snapshot, or of a transaction with its own writes. */
export type ReadPage = (order: ScanOrder) => Promise<MergedScan>

/** A range of keys in one direction. */
export interface RangeOrder extends Omit<ScanOrder, 'limit' | 'bytesMax'> {
  /** Where an earlier page ended: the scan goes on behind this key. */
  readonly after?: Uint8Array | undefined
}

export function readPage(read: ReadPage, range: RangeOrder, limit: number, bytesMax: number): Promise<MergedScan> {
  const { reverse, keyOnly, after } = range
  const start = after !== undefined && !reverse ? afterKey(after) : range.start
  const end = after !== undefined && reverse ? after : range.end
  return read({ start, end, reverse, keyOnly, limit, bytesMax })
}

/** The pairs of a range, up to `limit` of them, page by page. While the caller uses one page the next is being read. */
export async function* pagesOf(
  read: ReadPage,
  range: RangeOrder,
  limit: number,
): AsyncGenerator<readonly MergedPair[], void> {
  const pageAfter = (after: Uint8Array | undefined, left: number): Promise<MergedScan> => {
    const reading = readPage(read, { ...range, after }, Math.min(left, SCAN_PAGE), STREAM_PAGE_BYTES)
    reading.catch(() => {}) // A caller that stops early does not wait for it.
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
