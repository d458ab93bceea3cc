import { keyText } from '../../../src/bytes/key-text.js'
import { OrderedKeys } from '../../../src/bytes/ordered-keys.js'
import { sleep } from '../../../src/event-loop/sleep.js'
import type {
  Cell,
  Changed,
  ColumnRange,
  ColumnWrite,
  Expected,
  Family,
  RowsRequest,
  Table,
  TableRow,
} from '../../../src/store/bigtable/table.js'

/** What becomes of a change. `late`: it is answered before it is done, and done a while later. */
export type Fate = 'done' | 'not done' | 'done, answer lost' | 'late'

const FAMILIES: readonly Family[] = ['d', 'l', 'o', 'r', 'v', 'w']

/** A table in memory. Every call takes some turns of the event loop, so that calls of several processes interleave. */
export class MemoryTable implements Table {
  readonly calls = { read: 0, change: 0, put: 0, remove: 0 }
  readonly inFlight = { calls: 0, bytes: 0 }
  /** By row: values by family and qualifier. */
  readonly #rows = new Map<string, Map<string, Cell>>()
  readonly #order = new OrderedKeys()
  readonly #fate: () => Fate
  readonly #turns: () => number
  /** Changes that are done late. */
  readonly late: (() => void)[] = []

  readonly #delayMs: (() => number) | undefined

  /** @param delayMs twice per call. */
  constructor(fate: () => Fate = () => 'done', turns: () => number = () => 1, delayMs?: () => number) {
    this.#fate = fate
    this.#turns = turns
    this.#delayMs = delayMs
  }

  rows(request: RowsRequest): Promise<readonly TableRow[]> {
    this.calls.read++
    return this.#inFlight(() => this.#rowsOf(request))
  }

  async #rowsOf({
    keys = [],
    ranges = [],
    columns,
    orBare = false,
    limit,
    reverse = false,
  }: RowsRequest): Promise<readonly TableRow[]> {
    await this.#pause()
    const found: TableRow[] = []
    const add = (text: string): boolean => {
      const row = this.#read(text, columns, orBare)
      if (row !== undefined) found.push(row)
      return limit === undefined || found.length < limit
    }
    for (const text of new Set(keys.map(keyText))) add(text)
    for (const { start, end } of ranges)
      for (const text of [...this.#order.range(keyText(start), end && keyText(end), reverse)]) if (!add(text)) break
    if (ranges.length === 0) found.sort((a, b) => Buffer.compare(a.key, b.key))
    await this.#pause()
    return found
  }

  change(key: Buffer, expected: Expected, writes: readonly ColumnWrite[] | 'remove'): Promise<Changed> {
    this.calls.change++
    return this.#inFlight(() => this.#change(key, expected, writes))
  }

  async #change(key: Buffer, expected: Expected, writes: readonly ColumnWrite[] | 'remove'): Promise<Changed> {
    await this.#pause()
    const fate = this.#fate()
    const apply = (): Changed => {
      const cell = this.#rows.get(keyText(key))?.get(columnOf(expected))
      const isExpected = expected.value === undefined ? cell === undefined : cell?.value.equals(expected.value) === true
      if (!isExpected) return 'refused'
      if (writes === 'remove') this.#remove(keyText(key))
      else this.#write(key, writes)
      return 'done'
    }
    if (fate === 'not done') return 'unknown'
    if (fate === 'late') {
      this.late.push(apply)
      return 'unknown'
    }
    const changed = apply()
    await this.#pause()
    return fate === 'done' ? changed : 'unknown'
  }

  async put(key: Buffer, writes: readonly ColumnWrite[]): Promise<void> {
    this.calls.put++
    await this.#inFlight(() => this.#pause())
    this.#write(key, writes)
  }

  async remove(keys: readonly Buffer[]): Promise<void> {
    this.calls.remove++
    await this.#inFlight(() => this.#pause())
    for (const key of keys) this.#remove(keyText(key))
  }

  async close(): Promise<void> {}

  #read(text: string, columns: readonly ColumnRange[], orBare: boolean): TableRow | undefined {
    const row = this.#rows.get(text)
    if (row === undefined) return undefined
    const all = [...row.values()].sort(inOrder)
    const wanted = new Set<Cell>()
    if (orBare && all.every(({ family }) => family === 'v')) for (const cell of all) wanted.add(cell)
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

  #write(key: Buffer, writes: readonly ColumnWrite[]): void {
    const text = keyText(key)
    const row = this.#rows.get(text) ?? new Map<string, Cell>()
    for (const write of writes) {
      const { family, qualifier, value } = write
      if (value === undefined) row.delete(columnOf(write))
      else row.set(columnOf(write), { family, qualifier: Buffer.from(qualifier), value: Buffer.from(value) })
    }
    if (row.size === 0) this.#remove(text)
    else if (!this.#rows.has(text)) {
      this.#rows.set(text, row)
      this.#order.add(text)
    }
  }

  #remove(text: string): void {
    if (this.#rows.delete(text)) this.#order.delete(text)
  }

  async #inFlight<T>(call: () => Promise<T>): Promise<T> {
    this.inFlight.calls++
    try {
      return await call()
    } finally {
      this.inFlight.calls--
    }
  }

  async #pause(): Promise<void> {
    if (this.#delayMs !== undefined) {
      this.inFlight.calls-- // So that whoever makes time leap when nothing is done does so now.
      await sleep(this.#delayMs())
      this.inFlight.calls++
    }
    for (let turns = this.#turns(); turns > 0; turns--) await new Promise((next) => setImmediate(next))
  }
}

function columnOf({ family, qualifier }: { readonly family: Family; readonly qualifier: Buffer }): string {
  return `${family}:${keyText(qualifier)}`
}

function inOrder(a: Cell, b: Cell): number {
  return FAMILIES.indexOf(a.family) - FAMILIES.indexOf(b.family) || Buffer.compare(a.qualifier, b.qualifier)
}
