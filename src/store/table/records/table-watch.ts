import { backgroundTimer } from '../../../event-loop/background-timer.js'
import { decodeOracleRecord, type OracleRecord } from '../../../oracle/oracle-row.js'
import { rowKeyOfSystem } from '../layout/row-keys.js'
import type { Table } from '../layout/table.js'
import { tableState } from './table-state.js'

const POLL_MS = 2000

const SECRET = rowKeyOfSystem('secret')
const ORACLE = rowKeyOfSystem('oracle')

export interface TableWatchOptions {
  readonly table: Table
  /** Of the servers, as this one found it when it joined. */
  readonly secret: Buffer
  /** Called once, when the table is not the one that this server has joined. */
  readonly onAnother: (why: string) => void
  /** Called once, when the table lacks what was in it. */
  readonly onSetBack: (why: string) => void
}

/** Looks again and again whether the table is still there, and still the one that this server has joined. */
export class TableWatch {
  readonly #options: TableWatchOptions
  #seen: OracleRecord | undefined
  #fault: string | undefined
  #stopTimer = (): void => {}
  #isOver = false

  constructor(options: TableWatchOptions) {
    this.#options = options
  }

  /** What is wrong with the table, as far as this server has seen. */
  get fault(): string | undefined {
    return this.#fault
  }

  start(): void {
    this.#stopTimer = backgroundTimer(POLL_MS, () => {
      void this.look().then(() => {
        if (!this.#isOver) this.start()
      })
    })
  }

  close(): void {
    this.#isOver = true
    this.#stopTimer()
  }

  /** Looks must not overlap. */
  async look(): Promise<void> {
    const { table, secret, onAnother, onSetBack } = this.#options
    try {
      const rows = await table.rows({ keys: [SECRET, ORACLE], columns: [{ family: 'o' }] })
      const valueAt = (key: Buffer): Buffer | undefined => rows.find((row) => row.key.equals(key))?.cells[0]?.value
      const bytes = valueAt(ORACLE)
      const oracle = bytes && decodeOracleRecord(bytes)
      if (this.#isOver) return
      const state = tableState(secret, this.#seen, { secret: valueAt(SECRET), oracle })
      this.#seen = oracle ?? this.#seen
      this.#fault = state.is === 'same' ? undefined : state.why
      if (state.is === 'same' || state.is === 'faulty') return
      this.close()
      if (state.is === 'another') onAnother(state.why)
      else onSetBack(state.why)
    } catch (error) {
      this.#fault = error instanceof Error ? error.message : String(error)
    }
  }
}
