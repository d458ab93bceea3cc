import { KvError } from '../../../src/errors/kv-error.js'
import { sleep } from '../../../src/event-loop/sleep.js'
import { BIGTABLE } from '../../../src/store/table/bigtable/bigtable.js'
import type {
  Changed,
  Expected,
  RowsRequest,
  RowWrite,
  Table,
  TableRow,
  WalkedRows,
  WalkRequest,
} from '../../../src/store/table/layout/table.js'
import { TableRows } from './table-rows.js'

/** What becomes of a change. `late`: it is answered before it is done, and done a while later. */
export type Fate = 'done' | 'not done' | 'done, answer lost' | 'late'

type FateOf = (key: Buffer, writes: readonly RowWrite[] | 'remove') => Fate

/** Conditions with longer values are refused, as Bigtable refuses filters over 20 480 bytes. */
const EXPECTED_BYTES_MAX = 10_200

/** So few that tests walk over more. */
const WALKED_AT_ONCE = 64

/** A table in memory. Every call takes some turns of the event loop, so that calls of several processes interleave. */
export class MemoryTable implements Table {
  readonly engine = BIGTABLE
  readonly calls = { read: 0, change: 0 }
  readonly inFlight = { calls: 0, bytes: 0 }
  readonly #rows = new TableRows()
  readonly #fate: FateOf
  readonly #turns: () => number
  /** Changes that are done late. */
  readonly late: (() => void)[] = []

  readonly #delayMs: (() => number) | undefined

  /** @param delayMs twice per call. */
  constructor(fate: FateOf = () => 'done', turns: () => number = () => 1, delayMs?: () => number) {
    this.#fate = fate
    this.#turns = turns
    this.#delayMs = delayMs
  }

  rows(request: RowsRequest): Promise<readonly TableRow[]> {
    return this.#read(() => this.#rows.read(request))
  }

  walk(request: WalkRequest): Promise<WalkedRows> {
    return this.#read(() => this.#rows.walk(request, WALKED_AT_ONCE))
  }

  #read<T>(read: () => T): Promise<T> {
    this.calls.read++
    return this.#inFlight(async () => {
      await this.#pause()
      const found = read()
      await this.#pause()
      return found
    })
  }

  change(key: Buffer, expected: Expected, writes: readonly RowWrite[] | 'remove'): Promise<Changed> {
    this.calls.change++
    if ((expected.value?.length ?? 0) > EXPECTED_BYTES_MAX)
      return Promise.reject(new KvError('storage_unavailable', 'the filter is too long', {}))
    return this.#inFlight(() => this.#change(key, expected, writes))
  }

  async #change(key: Buffer, expected: Expected, writes: readonly RowWrite[] | 'remove'): Promise<Changed> {
    await this.#pause()
    const fate = this.#fate(key, writes)
    const apply = (): Changed => this.#rows.change(key, expected, writes)
    if (fate === 'not done') return 'unknown'
    if (fate === 'late') {
      this.late.push(apply)
      return 'unknown'
    }
    const changed = apply()
    await this.#pause()
    return fate === 'done' ? changed : 'unknown'
  }

  /** What no server does: without a condition. */
  put(key: Buffer, writes: readonly RowWrite[]): void {
    this.#rows.write(key, writes)
  }

  /** What no server does: without a condition. */
  remove(keys: readonly Buffer[]): void {
    for (const key of keys) this.#rows.remove(key)
  }

  /** Does the changes that are late. */
  catchUp(): void {
    for (const apply of this.late.splice(0)) apply()
  }

  async close(): Promise<void> {}

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
