import { KvError } from '../../../errors/kv-error.js'
import { LOCK_COLUMN, REVISION_COLUMN } from '../layout/layout.js'
import type { Cell, ColumnRange, Table } from '../layout/table.js'

/** Of each family in one read: some megabytes of records, some long values. */
const RECORDS_MAX = 1000
const VALUES_MAX = 4
const READS_MAX = 3
const COLUMNS: readonly ColumnRange[] = [
  LOCK_COLUMN,
  { family: 'w', limit: RECORDS_MAX },
  { family: 'r', limit: RECORDS_MAX },
  { family: 'd', limit: VALUES_MAX },
]
const ZERO = Buffer.of(0)

/**
 * All cells of a row of a user, in order. With all its versions it may have a hundred megabytes, so it is read in parts, which
 * are of one moment if the row has one revision in all of them.
 * @param onPart may throw for want of room, before the next part is read. `undefined`: what was read so far does not count.
 * @throws KvError `overloaded` where the row changes all the time; `storage_unavailable`
 */
export async function wholeRow(
  table: Pick<Table, 'rows'>,
  key: Buffer,
  onPart: (cells: readonly Cell[] | undefined) => void,
): Promise<readonly Cell[]> {
  for (let reads = 0; reads < READS_MAX; reads++) {
    const cells = await wholeOnce(table, key, onPart)
    if (cells !== undefined) return cells
    onPart(undefined)
  }
  throw new KvError('overloaded', 'the key changes while its long history is read', {})
}

async function wholeOnce(
  table: Pick<Table, 'rows'>,
  key: Buffer,
  onPart: (cells: readonly Cell[]) => void,
): Promise<readonly Cell[] | undefined> {
  const cells: Cell[] = []
  let first: Buffer | undefined
  for (let left = COLUMNS, isFirst = true; left.length > 0; isFirst = false) {
    const [row] = await table.rows({ keys: [key], columns: [REVISION_COLUMN, ...left] })
    const found = row?.cells ?? []
    const revision = found.find(({ family }) => family === 'v')?.value
    if (isFirst) first = revision
    else if (revision === undefined || first === undefined || !revision.equals(first)) return undefined
    const part = found.filter(({ family }) => family !== 'v')
    onPart(part)
    cells.push(...part)
    left = left.flatMap((range) => restOf(range, part))
  }
  return cells.sort((a, b) => (a.family < b.family ? -1 : a.family > b.family ? 1 : 0))
}

function restOf(range: ColumnRange, found: readonly Cell[]): readonly ColumnRange[] {
  const own = found.filter(({ family }) => family === range.family)
  const last = own.at(-1)
  if (range.limit === undefined || last === undefined || own.length < range.limit) return []
  return [{ ...range, from: Buffer.concat([last.qualifier, ZERO]) }]
}
