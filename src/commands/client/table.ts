import { cutTo, widthOf } from './shown.js'

const ROWS_MEASURED = 100
const WIDTH_MAX = 60
const GAP = '  '

export class Table {
  readonly #header: readonly string[]
  readonly #columns: number
  readonly #isLive: boolean
  #widths: number[]
  /** Rows that wait until the widths are known. */
  #waiting: (readonly string[])[] | undefined

  /** @param isLive rows are shown as they arrive, so that the widths can only grow. */
  constructor(header: readonly string[], columns: number, { isLive = false } = {}) {
    this.#header = header
    this.#columns = columns
    this.#isLive = isLive
    this.#widths = header.map(widthOf)
    this.#waiting = []
  }

  /** @returns the lines that can be shown. */
  add(row: readonly string[]): string {
    if (this.#waiting === undefined) return this.#line(row)
    this.#waiting.push(row)
    return this.#isLive || this.#waiting.length >= ROWS_MEASURED ? this.end() : ''
  }

  /** @returns the remaining lines, with the header if it was not shown yet. */
  end(): string {
    if (this.#waiting === undefined) return ''
    const rows = this.#waiting
    this.#waiting = undefined
    for (const row of rows) this.#measure(row)
    return [this.#header, ...rows].map((row) => this.#line(row)).join('')
  }

  #measure(row: readonly string[]): void {
    this.#widths = this.#widths.map((width, i) => Math.max(width, widthOf(cutTo(row[i] ?? '', WIDTH_MAX))))
  }

  #line(row: readonly string[]): string {
    if (this.#isLive) this.#measure(row)
    let left = this.#columns
    const last = row.length - 1
    const cells = row.map((text, i) => {
      const width = i === last ? Math.max(8, left) : (this.#widths[i] ?? 0)
      const cell = cutTo(text, width)
      left -= width + GAP.length
      return i === last ? cell : cell + ' '.repeat(Math.max(0, width - widthOf(cell)))
    })
    return `${cells.join(GAP).trimEnd()}\n`
  }
}
