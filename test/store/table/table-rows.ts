import { keyText } from '../../../src/bytes/key-text.js'
import { OrderedKeys } from '../../../src/bytes/ordered-keys.js'
import type {
  Cell,
  Changed,
  ColumnRange,
  ColumnWrite,
  Expected,
  Family,
  RowsRequest,
  RowWrite,
  TableRow,
  WalkedRows,
  WalkRequest,
} from '../../../src/store/table/layout/table.js'

const FAMILIES: readonly Family[] = ['d', 'l', 'o', 'r', 'v', 'w']

/** What a table has at one moment. */
export class TableRows {
  /** By row: values by family and qualifier. */
  readonly #rows = new Map<string, Map<string, Cell>>()
  readonly #order = new OrderedKeys()
  readonly #onWrite: (key: Buffer, writes: readonly ColumnWrite[]) => void

  /** @param onWrite hears what is written. */
  constructor(onWrite: (key: Buffer, writes: readonly ColumnWrite[]) => void = () => {}) {
    this.#onWrite = onWrite
  }

  read({ keys = [], ranges = [], columns, limit }: RowsRequest): TableRow[] {
    const found: TableRow[] = []
    const add = (text: string): boolean => {
      const row = this.#read(text, columns, false)
      if (row !== undefined) found.push(row)
      return limit === undefined || found.length < limit
    }
    for (const text of new Set(keys.map(keyText))) add(text)
    for (const { start, end } of ranges)
      for (const text of [...this.#order.range(keyText(start), end && keyText(end), false)]) if (!add(text)) break
    if (ranges.length === 0) found.sort((a, b) => Buffer.compare(a.key, b.key))
    return found
  }

  /** @param rowsMax rows that the walk looks at. */
  walk({ range, columns, orBare = false, limit, reverse = false }: WalkRequest, rowsMax: number): WalkedRows {
    const { start, end } = range
    const rows: TableRow[] = []
    let count = 0
    for (const text of this.#order.range(keyText(start), end && keyText(end), reverse)) {
      if (rows.length === limit || count++ === rowsMax) {
        const key = Buffer.from(text, 'latin1')
        return { rows, left: reverse ? { start, end: Buffer.concat([key, Buffer.of(0)]) } : { start: key, end } }
      }
      const row = this.#read(text, columns, orBare)
      if (row !== undefined) rows.push(row)
    }
    return { rows, left: undefined }
  }

  isAs(key: Buffer, expected: Expected): boolean {
    const cell = this.#rows.get(keyText(key))?.get(columnOf(expected))
    return expected.value === undefined ? cell === undefined : cell?.value.equals(expected.value) === true
  }

  change(key: Buffer, expected: Expected, writes: readonly RowWrite[] | 'remove'): Changed {
    if (!this.isAs(key, expected)) return 'refused'
    if (writes === 'remove') this.remove(key)
    else this.write(key, writes)
    return 'done'
  }

  write(key: Buffer, writes: readonly RowWrite[]): void {
    const text = keyText(key)
    const row = this.#rows.get(text) ?? new Map<string, Cell>()
    for (const write of writes) {
      const { family, qualifier, value } = write
      if (qualifier === undefined) {
        for (const [column, cell] of [...row]) if (cell.family === family) row.delete(column)
      } else if (value === undefined) row.delete(columnOf(write))
      else row.set(columnOf(write), { family, qualifier: Buffer.from(qualifier), value: Buffer.from(value) })
    }
    if (row.size === 0) this.remove(key)
    else if (!this.#rows.has(text)) {
      this.#rows.set(text, row)
      this.#order.add(text)
    }
    this.#onWrite(key, writes.filter(isOfColumn))
  }

  remove(key: Buffer): void {
    const text = keyText(key)
    if (this.#rows.delete(text)) this.#order.delete(text)
  }

  #read(text: string, columns: readonly ColumnRange[], orBare: boolean): TableRow | undefined {
    const row = this.#rows.get(text)
    if (row === undefined) return undefined
    const all = [...row.values()].sort(inOrder)
    const wanted = new Set<Cell>()
    if (orBare && all.every(({ family }) => family === 'v' || family === 'o'))
      for (const cell of all) if (cell.family === 'v') wanted.add(cell)
    for (const { family, from, to, offset = 0, limit = Number.POSITIVE_INFINITY, valuesFrom } of columns) {
      const isWithin = ({ family: own, qualifier }: Cell): boolean =>
        own === family &&
        (from === undefined || Buffer.compare(qualifier, from) >= 0) &&
        (to === undefined || Buffer.compare(qualifier, to) <= 0)
      for (const cell of all.filter(isWithin).slice(offset).slice(0, limit))
        if (valuesFrom === undefined || Buffer.compare(cell.value, valuesFrom) >= 0) wanted.add(cell)
    }
    if (wanted.size === 0) return undefined
    return { key: Buffer.from(text, 'latin1'), cells: all.filter((cell) => wanted.has(cell)) }
  }
}

function isOfColumn(write: RowWrite): write is ColumnWrite {
  return write.qualifier !== undefined
}

function columnOf({ family, qualifier }: { readonly family: Family; readonly qualifier: Buffer }): string {
  return `${family}:${keyText(qualifier)}`
}

function inOrder(a: Cell, b: Cell): number {
  return FAMILIES.indexOf(a.family) - FAMILIES.indexOf(b.family) || Buffer.compare(a.qualifier, b.qualifier)
}
