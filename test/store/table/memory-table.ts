import { KvError } from '../../../src/errors/kv-error.js'
import { sleep } from '../../../src/event-loop/sleep.js'
import { BIGTABLE } from '../../../src/store/table/bigtable/bigtable.js'
import type { Broadcast } from '../../../src/store/table/layout/broadcast.js'
import type {
  Changed,
  ChangeTogether,
  Expected,
  RowCondition,
  RowsRequest,
  RowWrite,
  Table,
  TableRow,
  WalkedRows,
  WalkRequest,
} from '../../../src/store/table/layout/table.js'
import { type Hold, RowHolds } from './row-holds.js'
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
  broadcast: Broadcast | undefined
  readonly #rows = new TableRows()
  readonly #fate: FateOf
  readonly #turns: () => number
  /** Changes that are done late. */
  readonly late: (() => void)[] = []

  readonly #delayMs: (() => number) | undefined
  readonly #holds = new RowHolds()
  readonly changeTogether?: ChangeTogether

  /**
   * @param delayMs twice per call.
   * @param isTogether whether rows change together.
   */
  constructor(
    fate: FateOf = () => 'done',
    turns: () => number = () => 1,
    delayMs?: () => number,
    { isTogether = false } = {},
  ) {
    this.#fate = fate
    this.#turns = turns
    this.#delayMs = delayMs
    if (isTogether) this.changeTogether = (rows, writes) => this.#inFlight(() => this.#changeTogether(rows, writes))
  }

  rows(request: RowsRequest): Promise<readonly TableRow[]> {
    return this.#read(request, () => this.#rows.read(request))
  }

  walk(request: WalkRequest): Promise<WalkedRows> {
    return this.#read(request, () => this.#rows.walk(request, WALKED_AT_ONCE))
  }

  #read<T>(request: RowsRequest | WalkRequest, read: () => T): Promise<T> {
    this.calls.read++
    return this.#inFlight(async () => {
      await this.#pause()
      if (request.settled) await this.#away(new Promise<void>((run) => this.#holds.whenSettled(request, run)))
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
    await this.#away(new Promise<void>((run) => this.#holds.whenFree([key], run)))
    const fate = this.#fate(key, writes)
    const apply = (): Changed => this.#rows.change(key, expected, writes)
    if (fate === 'not done') return 'unknown'
    if (fate === 'late') {
      this.late.push(() => this.#holds.whenFree([key], apply))
      return 'unknown'
    }
    const changed = apply()
    await this.#pause()
    return fate === 'done' ? changed : 'unknown'
  }

  /** Of a change that is late the rows are locked for some turns of the event loop. */
  async #changeTogether(rows: readonly RowCondition[], writes: Parameters<ChangeTogether>[1]): Promise<Changed> {
    this.calls.change++
    await this.#pause()
    const keys = rows.map(({ key }) => key)
    const held = new Promise<Hold>((run) => this.#holds.whenFree(keys, () => run(this.#holds.take(keys))))
    const hold = await this.#away(held)
    let isLate = false
    try {
      const isAsExpected = rows.every(({ key, expected }) => this.#rows.isAs(key, expected))
      await this.#pause()
      const all = isAsExpected ? await this.#away(writes()) : undefined
      if (all === undefined) return 'refused'
      await this.#pause()
      const fate = this.#fate(keys[0] ?? Buffer.alloc(0), all[0] ?? [])
      if (fate === 'not done') return 'unknown'
      const apply = (): void => {
        for (const [i, key] of keys.entries()) this.#rows.write(key, all[i] ?? [])
        hold.end()
      }
      isLate = fate === 'late'
      if (isLate)
        void this.#pause()
          .then(() => this.#pause())
          .then(apply)
      else apply()
      await this.#pause()
      return fate === 'done' ? 'done' : 'unknown'
    } finally {
      if (!isLate) hold.end()
    }
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

  /** Whoever makes time leap when nothing is done may do so meanwhile. */
  async #away<T>(waiting: Promise<T>): Promise<T> {
    this.inFlight.calls--
    try {
      return await waiting
    } finally {
      this.inFlight.calls++
    }
  }

  async #pause(): Promise<void> {
    if (this.#delayMs !== undefined) await this.#away(sleep(this.#delayMs()))
    for (let turns = this.#turns(); turns > 0; turns--) await new Promise((next) => setImmediate(next))
  }
}
