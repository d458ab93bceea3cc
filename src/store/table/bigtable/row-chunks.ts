import type { Cell, Family, TableRow } from '../layout/table.js'

/** A piece of Bigtable's answer to ReadRows. An absent or empty field is as in the piece before, in the same row. */
export interface CellChunk {
  readonly rowKey: Buffer
  readonly familyName: { readonly value: string } | null
  readonly qualifier: { readonly value: Buffer } | null
  readonly timestampMicros?: number | string
  readonly labels?: readonly string[]
  readonly value: Buffer
  readonly valueSize: number
  readonly resetRow: boolean
  readonly commitRow: boolean
}

/** Shorter values are copied, because a kept value would keep its whole message, which can be large. */
const COPIED_BELOW = 16 << 10

/** Assembles rows from pieces. A row counts only once its last piece is there. Cells with a label only show that it was passed. */
export class RowChunks {
  readonly rows: TableRow[] = []
  /** Key of the last row, and the number of rows, with those that have only cells with labels. */
  lastKey: Buffer | undefined
  count = 0
  #key: Buffer | undefined
  #family: string | undefined
  #qualifier: Buffer | undefined
  #cells: Cell[] = []
  #pieces: Buffer[] = []

  /** @throws Error for pieces that form no row. */
  add(chunk: CellChunk): void {
    if (chunk.resetRow) {
      this.breakOff()
      return
    }
    if (chunk.rowKey.length > 0) this.#key ??= own(chunk.rowKey)
    if (chunk.familyName !== null) this.#family = chunk.familyName.value
    if (chunk.qualifier !== null) this.#qualifier = own(chunk.qualifier.value)
    if (chunk.valueSize > 0) {
      this.#pieces.push(chunk.value)
      return
    }
    const value = this.#pieces.length === 0 ? own(chunk.value) : Buffer.concat([...this.#pieces, chunk.value])
    this.#pieces = []
    if (this.#key === undefined || this.#family === undefined || this.#qualifier === undefined)
      throw new Error('a cell without a row, a family or a column')
    const isLabelled = chunk.labels !== undefined && chunk.labels.length > 0
    if (!isLabelled) this.#cells.push({ family: this.#family as Family, qualifier: this.#qualifier, value })
    if (!chunk.commitRow) return
    if (this.#cells.length > 0) this.rows.push({ key: this.#key, cells: inOrder(this.#cells) })
    this.lastKey = this.#key
    this.count++
    this.breakOff()
  }

  /** Call after the whole answer. @throws Error if its last row is incomplete. */
  end(): void {
    if (this.#key !== undefined) throw new Error('the answer ends within a row')
  }

  /** Discards an incomplete row: the next try sends it from its beginning. */
  breakOff(): void {
    this.#key = undefined
    this.#family = undefined
    this.#qualifier = undefined
    this.#cells = []
    this.#pieces = []
  }
}

function own(bytes: Buffer): Buffer {
  return bytes.length < COPIED_BELOW ? Buffer.from(bytes) : bytes
}

/** A column comes once per filter that matches it, and families come in any order. */
function inOrder(cells: Cell[]): readonly Cell[] {
  if (cells.length < 2) return cells
  cells.sort(byColumn)
  return cells.filter((cell, i) => i === 0 || byColumn(cells[i - 1] as Cell, cell) !== 0)
}

function byColumn(a: Cell, b: Cell): number {
  if (a.family !== b.family) return a.family < b.family ? -1 : 1
  return Buffer.compare(a.qualifier, b.qualifier)
}
