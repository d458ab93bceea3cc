import { type Colour, type Paint, PLAIN } from '../paint.js'
import { cutTo, widthOf } from './shown.js'

/** A text of a row, with a colour where it matters. */
export type Cell = string | { readonly text: string; readonly colour: Colour }

export interface TableOptions {
  /** Rows are shown as they arrive, so that the widths can only grow. */
  readonly isLive?: boolean
}

const ROWS_MEASURED = 100
const GAP = '  '
/** A column is not made narrower: times and timestamps fit. */
const WIDTH_MIN = 24
/** The same of the last column. */
const LAST_WIDTH_MIN = 16

/**
 * Rows in columns. The widest columns are cut until the rows fit in the terminal. In one that is too narrow for that, a row has a
 * line for each of its columns.
 */
export class Table {
  readonly #header: readonly string[]
  readonly #columns: number
  readonly #isLive: boolean
  readonly #paint: Paint
  /** As wide as the longest text. */
  #wanted: number[]
  /** As wide as there is room; undefined in a terminal that is too narrow. */
  #widths: readonly number[] | undefined
  /** Rows that wait until the widths are known. */
  #waiting: (readonly Cell[])[] | undefined

  constructor(header: readonly string[], columns: number, { isLive = false }: TableOptions = {}, paint: Paint = PLAIN) {
    this.#header = header
    this.#columns = columns
    this.#isLive = isLive
    this.#paint = paint
    this.#wanted = header.map(widthOf)
    this.#waiting = []
  }

  /** @returns the lines that can be shown. */
  add(row: readonly Cell[]): string {
    if (this.#waiting === undefined) return this.#lines(row)
    this.#waiting.push(row)
    return this.#isLive || this.#waiting.length >= ROWS_MEASURED ? this.end() : ''
  }

  /** @returns the remaining lines, with the header if it was not shown yet. */
  end(): string {
    if (this.#waiting === undefined) return ''
    const rows = this.#waiting
    this.#waiting = undefined
    for (const row of rows) this.#measure(row)
    this.#widths = fitted(this.#wanted, this.#columns)
    const isRecords = this.#widths === undefined && rows.length > 0
    const header = isRecords ? '' : this.#line(this.#header.map((text) => ({ text, colour: 'bold' })))
    return header + rows.map((row) => this.#lines(row)).join('')
  }

  #measure(row: readonly Cell[]): void {
    this.#wanted = this.#wanted.map((width, i) => Math.max(width, widthOf(cutTo(textOf(row[i]), this.#columns))))
  }

  #lines(row: readonly Cell[]): string {
    if (this.#widths === undefined) return this.#record(row)
    if (!this.#isLive) return this.#line(row)
    this.#measure(row)
    this.#widths = fitted(this.#wanted, this.#columns) ?? this.#widths
    return this.#line(row)
  }

  #line(row: readonly Cell[]): string {
    const widths = this.#widths ?? this.#wanted
    const last = row.length - 1
    const cells = row.map((cell, i) => {
      const text = cutTo(textOf(cell), widths[i] ?? 0)
      const blank = i === last ? '' : ' '.repeat(Math.max(0, (widths[i] ?? 0) - widthOf(text)))
      return this.#painted(cell, text) + blank
    })
    return `${cells.join(GAP).trimEnd()}\n`
  }

  #record(row: readonly Cell[]): string {
    const width = Math.max(...this.#header.map(widthOf))
    const left = Math.max(LAST_WIDTH_MIN, this.#columns - width - GAP.length)
    const lines = row.map((cell, i) => {
      const name = this.#paint('bold', (this.#header[i] ?? '').padEnd(width))
      return `${name}${GAP}${this.#painted(cell, cutTo(textOf(cell), left))}`.trimEnd()
    })
    return `${lines.join('\n')}\n\n`
  }

  #painted(cell: Cell, text: string): string {
    return typeof cell === 'string' || text === '' ? text : this.#paint(cell.colour, text)
  }
}

function textOf(cell: Cell | undefined): string {
  return typeof cell === 'object' ? cell.text : (cell ?? '')
}

/** Narrows the widest columns. The last one takes all that is left. @returns undefined when there is too little room. */
function fitted(wanted: readonly number[], columns: number): number[] | undefined {
  const last = wanted.length - 1
  const widths = [...wanted]
  const mayShrink = (width: number, i: number): boolean => width > (i === last ? LAST_WIDTH_MIN : WIDTH_MIN)
  let left = columns - GAP.length * last - widths.reduce((sum, width) => sum + width, 0)
  for (; left < 0; left++) {
    const widest = Math.max(...widths.filter(mayShrink))
    const at = widths.lastIndexOf(widest)
    if (at === -1) return undefined
    widths[at] = widest - 1
  }
  widths[last] = (widths[last] ?? 0) + left
  return widths
}
