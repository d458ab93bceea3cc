import type { Cell, ColumnRange, Family, RowRange, TableRow } from '../layout/table.js'
import { byteArray, bytesOf, type Statement, type TextRow } from './postgres-package.js'
import { UNDER_WAY, UNDER_WAY_FAMILY, underWay } from './settled.js'

/** What is read of a row. */
export interface Columns {
  readonly columns: readonly ColumnRange[]
  readonly orBare?: boolean | undefined
  /** Also answers, under `UNDER_WAY_FAMILY`, with the transaction that has locked the row. */
  readonly settled?: boolean | undefined
}

/** Reads with the same shape differ in bounds alone, so one statement can do them together. */
export function shapeOf({ columns, orBare, settled }: Columns): string {
  const shapes = columns.map(
    ({ family, from, to, offset = 0, limit = '', valuesFrom }) =>
      `${family}${from ? '>' : ''}${to ? '<' : ''}${valuesFrom ? '=' : ''}${offset}/${limit}`,
  )
  return `${shapes.join(' ')}${orBare ? ' bare' : ''}${settled ? ' settled' : ''}`
}

function boundsOf({ columns }: Columns): Buffer[] {
  return columns.flatMap(({ from, to, valuesFrom }) => [from, to, valuesFrom].filter((bound) => bound !== undefined))
}

/** The cells of the row `k.key` that are in any of the ranges. @param bound SQL of bound `i`. */
function cellsSql(table: string, { columns, orBare, settled }: Columns, bound: (i: number) => string): string {
  let bounds = 0
  const parts = columns.map(({ family, from, to, offset, limit, valuesFrom }) => {
    let sql = `select family, qualifier, value from ${table} where key = k.key and family = '${family}'`
    if (from !== undefined) sql += ` and qualifier >= ${bound(bounds++)}`
    if (to !== undefined) sql += ` and qualifier <= ${bound(bounds++)}`
    if (offset !== undefined || limit !== undefined) sql += ' order by qualifier'
    if (limit !== undefined) sql += ` limit ${limit}`
    if (offset !== undefined) sql += ` offset ${offset}`
    return valuesFrom === undefined ? sql : `select * from (${sql}) as within where value >= ${bound(bounds++)}`
  })
  if (orBare)
    parts.push(`select family, qualifier, value from ${table} where key = k.key and family = 'v'
      and not exists (select 1 from ${table} where key = k.key and family in ('d', 'l', 'r', 'w'))`)
  if (settled)
    parts.push(`select '${UNDER_WAY_FAMILY}'::"char", null::bytea, ${UNDER_WAY} from ${table}
      where key = k.key and family = 'v' and xmax <> '0'::xid`)
  return parts.map((part) => `(${part})`).join(' union all ')
}

export interface KeyedRead {
  readonly keys: readonly Buffer[]
  readonly wanted: Columns
}

/** Makes the statements of reads. Those of one shape are prepared once per connection, so they have one name. */
export class ReadStatements {
  readonly #table: string
  readonly #known = new Map<string, Pick<Statement, 'name' | 'text'>>()

  constructor(table: string) {
    this.#table = table
  }

  /** Of all keys of all reads, which have one shape. The first text of an answer is the place of the key, from 1 on. */
  ofKeys(reads: readonly KeyedRead[]): Statement {
    const wanted = reads[0]?.wanted ?? { columns: [] }
    const bounds = boundsOf(wanted).map((_, i) => `b${i}`)
    const text = (): string => `select k.i, c.family, c.qualifier, c.value
      from unnest(${['key', ...bounds].map((_, i) => `$${i + 1}::bytea[]`).join(', ')})
        with ordinality as k(${['key', ...bounds, 'i'].join(', ')}),
      lateral (${cellsSql(this.#table, wanted, (i) => `k.b${i}`)}) as c`
    const values = ['key', ...bounds].map((): Buffer[] => [])
    for (const { keys, wanted } of reads) {
      const own = boundsOf(wanted)
      for (const key of keys) for (const [i, value] of [key, ...own].entries()) values[i]?.push(value)
    }
    return { ...this.#named(`keys ${shapeOf(wanted)}`, text), values: values.map(byteArray) }
  }

  /**
   * Looks at the next `steps` rows of each range, from one key to the next by the index, so that neither rows without such cells
   * nor rows of many cells make it long. A row without a family has a range that was not looked at beyond its key.
   */
  ofRanges(ranges: readonly RowRange[], wanted: Columns, steps: number, reverse = false): Statement {
    const text = (): string => {
      const next = (condition: string): string =>
        `lateral (select key from ${this.#table} where ${condition} order by key${reverse ? ' desc' : ''} limit 1) as c`
      // An end that is open is NULL. Inside of the limit that would keep the index from being used.
      const isWithin = (range: string): string =>
        reverse ? `c.key >= ${range}.start` : `(${range}.stop is null or c.key < ${range}.stop)`
      return `with recursive looked(start, stop, key, n) as (
          select r.start, r.stop, c.key, 1
          from unnest($1::bytea[], $2::bytea[]) as r(start, stop),
            ${next(reverse ? 'key < r.stop' : 'key >= r.start')} where ${isWithin('r')}
        union all
          select l.start, l.stop, c.key, l.n + 1
          from looked as l, ${next(`key ${reverse ? '<' : '>'} l.key`)} where l.n < $3 and ${isWithin('l')}
        )
        select k.key, c.family, c.qualifier, c.value
        from looked as k, lateral (${cellsSql(this.#table, wanted, (i) => `$${4 + i}::bytea`)}) as c
        union all select key, null, stop, start from looked where n = $3`
    }
    const stops = ranges.map(({ end }) => end ?? (reverse ? ABOVE_ALL : undefined))
    const values = [byteArray(ranges.map(({ start }) => start)), byteArray(stops), steps, ...boundsOf(wanted)]
    return { ...this.#named(`ranges${reverse ? ' down' : ''} ${shapeOf(wanted)}`, text), values }
  }

  #named(shape: string, text: () => string): Pick<Statement, 'name' | 'text'> {
    const known = this.#known.get(shape)
    if (known !== undefined) return known
    const made = { name: `read ${this.#known.size}`, text: text() }
    this.#known.set(shape, made)
    return made
  }
}

/** No key of a row begins with as many. */
const ABOVE_ALL = Buffer.alloc(4096, 0xff)

/** Assembles rows. */
export class FoundRows {
  readonly #cells = new Map<string, Cell[]>()
  /** Transactions that have locked some of the rows. */
  readonly underWay = new Set<string>()

  /** @param key in hexadecimal digits. */
  add(key: string, [, family, qualifier, value]: TextRow): void {
    if (family === UNDER_WAY_FAMILY) {
      const holder = underWay(bytesOf(value ?? '').toString())
      if (holder !== undefined) this.underWay.add(holder)
      return
    }
    const cell = { family: family as Family, qualifier: bytesOf(qualifier ?? ''), value: bytesOf(value ?? '') }
    const cells = this.#cells.get(key)
    if (cells === undefined) this.#cells.set(key, [cell])
    else cells.push(cell)
  }

  get size(): number {
    return this.#cells.size
  }

  /** In key order. */
  rows({ reverse = false, limit = Number.POSITIVE_INFINITY } = {}): TableRow[] {
    const keys = [...this.#cells.keys()].sort()
    if (reverse) keys.reverse()
    return keys
      .slice(0, limit)
      .map((key) => ({ key: Buffer.from(key, 'hex'), cells: inOrder(this.#cells.get(key) ?? []) }))
  }
}

/** A cell in several of the ranges came several times. */
function inOrder(cells: Cell[]): readonly Cell[] {
  if (cells.length < 2) return cells
  cells.sort((a, b) => compare(a, b))
  return cells.filter((cell, i) => i === 0 || compare(cell, cells[i - 1] as Cell) !== 0)
}

function compare(a: Cell, b: Cell): number {
  if (a.family !== b.family) return a.family < b.family ? -1 : 1
  return Buffer.compare(a.qualifier, b.qualifier)
}
