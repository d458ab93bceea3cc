import { DEFAULT_LIMITS } from '../../../src/limits.js'
import { Clock } from '../../../src/oracle/clock.js'
import { Oracle } from '../../../src/oracle/oracle.js'
import { AnswerBudget } from '../../../src/store/answer-budget.js'
import { NEWEST_FORMAT } from '../../../src/store/table/format/format-row.js'
import type { Table } from '../../../src/store/table/layout/table.js'
import { RestoreGate } from '../../../src/store/table/restore/restore-gate.js'
import { TableStore } from '../../../src/store/table/table-store.js'
import type { WaitReports } from '../../../src/store/table/waits/wait-reports.js'
import type { StoreOptions } from '../suite/contract.js'

/** So short that a restore does not wait for seconds. */
const COPY_MS_MAX = 30

/** A store on a table, with an oracle of its own: for one process alone. */
export async function openTableStore(
  table: Table,
  options: StoreOptions = {},
  waits?: WaitReports,
  rowBytesMax?: number,
): Promise<TableStore> {
  const { now, monotonicNow, answers = new AnswerBudget(DEFAULT_LIMITS) } = options
  const clock = new Clock({ now, monotonicNow })
  const oracle = new Oracle({ savedMark: 0, save: async () => {}, clock })
  await oracle.next()
  const restoreGate = new RestoreGate(table, { copyMsMax: COPY_MS_MAX })
  await restoreGate.refresh()
  return new TableStore({
    ...{ table, oracle, clock, answers, waits, restoreGate },
    cursorSecret: Buffer.from('the same for all stores of a table'),
    cacheBytesMax: 2 ** 22,
    registeringMs: 20,
    logs: { beatMs: 100 },
    format: () => NEWEST_FORMAT.format,
    rowBytesMax,
    knownToAllMs: 0, // Nobody else has to know of a safe point.
  })
}
