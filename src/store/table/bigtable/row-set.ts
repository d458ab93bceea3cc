import type { RowRange, RowsRequest } from '../layout/table.js'

const PARTS_PER_REQUEST = 1000
/** Limit on the bytes of keys per request; Bigtable refuses much longer ones. */
const BYTES_PER_REQUEST = 256 << 10
const ZERO = Buffer.of(0)

interface Part extends RowRange {
  readonly isKey: boolean
}

export type RowSet = readonly Part[]

export function rowSetOf({ keys = [], ranges = [] }: Pick<RowsRequest, 'keys' | 'ranges'>): RowSet {
  const parts: Part[] = [
    ...keys.map((key) => ({ start: key, end: next(key), isKey: true })),
    ...ranges.filter(isNotEmpty).map(({ start, end }) => ({ start, end, isKey: false })),
  ]
  if (parts.length < 2) return parts
  parts.sort((a, b) => Buffer.compare(a.start, b.start))
  const apart: Part[] = []
  for (const part of parts) {
    const last = apart.at(-1)
    if (last === undefined || (last.end !== undefined && Buffer.compare(last.end, part.start) <= 0)) apart.push(part)
    else if (lower(last.end, part.end) !== part.end || (last.isKey && !part.isKey))
      apart[apart.length - 1] = { start: last.start, end: part.end, isKey: false }
  }
  return apart
}

/** The rest when all rows up to this key were read; down to it if the rows descend. */
export function beyond(set: RowSet, key: Buffer, reverse: boolean): RowSet {
  const bound = reverse ? key : next(key)
  const left: Part[] = []
  for (const part of set) {
    const cut = reverse
      ? { ...part, end: lower(bound, part.end) }
      : { ...part, start: Buffer.compare(part.start, bound) < 0 ? bound : part.start }
    if (isNotEmpty(cut)) left.push(cut)
  }
  return left
}

export function requestsOf(set: RowSet): RowSet[] {
  if (set.length < 2) return set.length === 0 ? [] : [set]
  const requests: Part[][] = []
  let bytes = Number.POSITIVE_INFINITY
  for (const part of set) {
    const own = keyBytes([part])
    const last = requests.at(-1)
    if (last !== undefined && last.length < PARTS_PER_REQUEST && bytes + own <= BYTES_PER_REQUEST) {
      last.push(part)
      bytes += own
    } else {
      requests.push([part])
      bytes = own
    }
  }
  return requests
}

export function keyBytes(set: RowSet): number {
  let bytes = 0
  for (const { start, end, isKey } of set) bytes += start.length + (isKey ? 0 : (end?.length ?? 0))
  return bytes
}

interface RowSetMessage {
  readonly rowKeys: readonly Buffer[]
  readonly rowRanges: readonly { readonly startKeyClosed: Buffer; readonly endKeyOpen?: Buffer }[]
}

export function rowSetMessage(set: RowSet): RowSetMessage {
  return {
    rowKeys: set.filter(({ isKey }) => isKey).map(({ start }) => start),
    rowRanges: set
      .filter(({ isKey }) => !isKey)
      .map(({ start, end }) => ({ startKeyClosed: start, ...(end && { endKeyOpen: end }) })),
  }
}

function next(key: Buffer): Buffer {
  return Buffer.concat([key, ZERO])
}

function isNotEmpty({ start, end }: RowRange): boolean {
  return end === undefined || Buffer.compare(start, end) < 0
}

/** The lower of two ends, where undefined is above all; the second if they are equal. */
function lower(one: Buffer | undefined, other: Buffer | undefined): Buffer | undefined {
  if (one === undefined || other === undefined) return one ?? other
  return Buffer.compare(one, other) < 0 ? one : other
}
