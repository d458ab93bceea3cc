import { randomBytes } from 'node:crypto'
import { DEFAULT_LIMITS } from '../../../src/limits.js'
import { Clock } from '../../../src/oracle/clock.js'
import { Oracle } from '../../../src/oracle/oracle.js'
import { AnswerBudget } from '../../../src/store/answer-budget.js'
import { BigtableStore } from '../../../src/store/bigtable/bigtable-store.js'
import type { Table } from '../../../src/store/bigtable/table.js'
import type { StoreOptions } from '../suite/contract.js'

/** A store on a table, with an oracle of its own: for one process alone. */
export async function openBigtableStore(table: Table, options: StoreOptions = {}): Promise<BigtableStore> {
  const { now, monotonicNow, answers = new AnswerBudget(DEFAULT_LIMITS) } = options
  const clock = new Clock({ now, monotonicNow })
  const oracle = new Oracle({ savedMark: 0, save: async () => {}, clock })
  await oracle.next()
  const sizes = { cacheBytesMax: 2 ** 22, registeringMs: 20 }
  return new BigtableStore({ table, oracle, clock, answers, cursorSecret: randomBytes(32), ...sizes })
}
