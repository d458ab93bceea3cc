import { vi } from 'vitest'
import { TableRegistry } from '../../../src/cluster/table-registry.js'
import { Database } from '../../../src/database/database.js'
import { DEFAULT_LIMITS } from '../../../src/limits.js'
import { Clock } from '../../../src/oracle/clock.js'
import { Oracle } from '../../../src/oracle/oracle.js'
import { AnswerBudget } from '../../../src/store/answer-budget.js'
import { NEWEST_FORMAT } from '../../../src/store/table/format/format-row.js'
import type { Table } from '../../../src/store/table/layout/table.js'
import { registryRowsOf } from '../../../src/store/table/records/registry-table.js'
import { TableStore } from '../../../src/store/table/table-store.js'
import { WaitGraph } from '../../../src/store/table/waits/wait-graph.js'
import { WaitReports } from '../../../src/store/table/waits/wait-reports.js'
import { utf8 } from '../support.js'
import type { MemoryTable } from './memory-table.js'

/** Turns of the event loop without a call on the table, after which everybody waits for a timer. */
const IDLE_TURNS = 5

/** As of several servers: they share the table, the oracle, and the graph of those who wait, and nothing else. */
export function severalDatabases(table: MemoryTable, count: number): Promise<Database[]> {
  return databasesOn(Array.from({ length: count }, () => table))
}

/** @param tables each shows the same table to its server. */
export function databasesOn(
  tables: readonly Table[],
  format = (): number => NEWEST_FORMAT.format,
): Promise<Database[]> {
  const clock = new Clock({})
  const oracle = new Oracle({ savedMark: 0, save: async () => {}, clock })
  const graph = new WaitGraph()
  return Promise.all(
    tables.map(async (table, i) => {
      const answers = new AnswerBudget(DEFAULT_LIMITS)
      const cursorSecret = utf8('secret')
      const waits = new WaitReports({ send: async (report) => graph.report(String(i), report) })
      const store = new TableStore({
        ...{ table, oracle, clock, answers, cursorSecret, waits },
        cacheBytesMax: 100_000,
        registeringMs: 20,
        format,
      })
      await store.start()
      const registry = new TableRegistry({
        ...{ rows: registryRowsOf(table), id: `server-${i}`, url: `http://server-${i}`, format: 1 },
        elapsedMs: () => clock.elapsedMs(),
      })
      return Database.open(store, { limits: DEFAULT_LIMITS, registry, onError: () => {} })
    }),
  )
}

/** Runs `body` on a clock that leaps to the next timer when nothing else is to be done, so that back-offs take no time. */
export async function inLeaps<T>(table: MemoryTable, body: () => Promise<T>): Promise<T> {
  vi.useFakeTimers({
    toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance', 'Date'],
    now: Date.now(),
  })
  try {
    let isOver = false
    const work = body().finally(() => {
      isOver = true
    })
    work.catch(() => {})
    for (let idle = 0; !isOver; ) {
      await new Promise((next) => setImmediate(next))
      idle = table.inFlight.calls === 0 ? idle + 1 : 0
      if (idle < IDLE_TURNS || isOver) continue
      vi.advanceTimersToNextTimer()
      idle = 0
    }
    return await work
  } finally {
    vi.useRealTimers()
  }
}
