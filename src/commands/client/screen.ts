import { once } from 'node:events'
import { snakeCase } from '../../bytes/field-names.js'
import { asBuffer } from '../../bytes/key-text.js'
import { type Paint, PLAIN } from '../paint.js'
import { shownText } from './shown.js'
import { type Cell, Table, type TableOptions } from './table.js'
import { wireJson } from './wire-json.js'

/** `table` for people, `lines` of JSON for programs, `raw` bytes. */
export type Form = 'table' | 'lines' | 'raw'

/** Bytes collected before a write. A shorter rest is written when the event loop is free. */
const PENDING_MAX = 64 * 1024
const COLUMNS_DEFAULT = 100
const ROWS_DEFAULT = 24

export interface Sink {
  write(bytes: Uint8Array): boolean
  readonly columns?: number
  readonly rows?: number
}

export class Screen {
  readonly form: Form
  readonly paint: Paint
  readonly #sink: Sink & NodeJS.EventEmitter
  #pending: Buffer[] = []
  #bytes = 0
  #isScheduled = false
  #isClosed = false

  constructor(sink: Sink & NodeJS.EventEmitter, form: Form, paint: Paint = PLAIN) {
    this.#sink = sink
    this.form = form
    this.paint = paint
  }

  /** Columns of the terminal. */
  get columns(): number {
    return this.#sink.columns ?? COLUMNS_DEFAULT
  }

  get rows(): number {
    return this.#sink.rows ?? ROWS_DEFAULT
  }

  table(header: readonly string[], options?: TableOptions): Table {
    return new Table(header, this.columns, options, this.paint)
  }

  /** Prints one line of JSON. */
  line(value: object): Promise<void> {
    return this.write(`${wireJson(value)}\n`)
  }

  /** Prints a whole list: a line of JSON per item, or a row. */
  async list<T extends object>(
    items: AsyncIterable<T> | Iterable<T>,
    header: readonly string[],
    rowOf: (item: T) => readonly Cell[],
  ): Promise<void> {
    const table = this.table(header)
    for await (const item of items) await (this.form === 'table' ? this.write(table.add(rowOf(item))) : this.line(item))
    if (this.form === 'table') await this.write(table.end())
  }

  /** Prints the fields of an answer. */
  async answer(fields: Readonly<Record<string, unknown>>): Promise<undefined> {
    if (this.form !== 'table') await this.line(fields)
    else await this.record(Object.entries(fields).map(([name, value]) => [snakeCase(name), textOf(value)]))
  }

  /** Prints rows of names and values. */
  record(fields: readonly (readonly [name: string, value: string])[]): Promise<void> {
    const width = Math.max(...fields.map(([name]) => name.length))
    return this.write(fields.map(([name, value]) => `${this.paint('bold', name.padEnd(width))}  ${value}\n`).join(''))
  }

  async write(text: string | Uint8Array): Promise<void> {
    if (this.#isClosed) throw new Error('interrupted')
    if (text.length === 0) return
    const bytes = typeof text === 'string' ? Buffer.from(text) : asBuffer(text)
    this.#pending.push(bytes)
    this.#bytes += bytes.length
    if (this.#bytes >= PENDING_MAX) return this.flush()
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      void this.flush()
    })
  }

  /** Prints nothing more: a command that still runs fails. */
  close(): void {
    this.#isClosed = true
    this.#pending = []
    this.#bytes = 0
  }

  async flush(): Promise<void> {
    if (this.#pending.length === 0) return
    const bytes = Buffer.concat(this.#pending)
    this.#pending = []
    this.#bytes = 0
    if (!this.#sink.write(bytes)) await once(this.#sink, 'drain')
  }
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? shownText(value) : wireJson(value)
}
