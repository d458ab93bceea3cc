import type { TableRegistry } from '../../../src/cluster/table-registry.js'
import { Database } from '../../../src/database/database.js'
import { DEFAULT_LIMITS } from '../../../src/limits.js'
import { Clock } from '../../../src/oracle/clock.js'
import { type Answering, asksBy } from '../../../src/oracle/signed-ask.js'
import { AnswerBudget } from '../../../src/store/answer-budget.js'
import type { Serving } from '../../../src/store/table/format/format-row.js'
import { type JoinOptions, joinTable } from '../../../src/store/table/join-table.js'
import type { Table } from '../../../src/store/table/layout/table.js'
import type { TableStore } from '../../../src/store/table/table-store.js'

export interface JoinedServer {
  readonly database: Database
  readonly store: TableStore
  readonly registry: TableRegistry
  /** The lines with which it was told to end. */
  readonly ends: readonly string[]
  /** When its start had ended. */
  readonly role: string
  /** What it said of its timestamps. */
  readonly warnings: readonly string[]
  close(): Promise<void>
}

/** Programs that start on one table as `perkv serve` does, and reach each other without a network. */
export class JoinedServers {
  readonly #table: Table
  readonly #answers = new Map<string, readonly Answering[]>()

  constructor(table: Table) {
    this.#table = table
  }

  /** @param registeringMs so short that observers need not be waited for; a short one makes a server read the table often. */
  async start(
    name: string,
    serving: Serving,
    registeringMs = 20,
    { table = this.#table, logs, lost }: { readonly table?: Table } & Pick<JoinOptions, 'logs' | 'lost'> = {},
  ): Promise<JoinedServer> {
    const url = `http://${name}`
    const ends: string[] = []
    const warnings: string[] = []
    const { store, member } = await joinTable(table, {
      ...{ url, serving, clock: new Clock({}), answers: new AnswerBudget(DEFAULT_LIMITS), registeringMs, logs, lost },
      onRole: () => {},
      onTimestamps: (message) => void warnings.push(message),
      onEnd: (message) => void ends.push(message),
      asksOf: (secret) => ({
        ask: asksBy(secret, async (kind, to, body) => {
          const answer = await this.#answers
            .get(to)
            ?.find((each) => each.name === kind)
            ?.answer(body)
          if (answer === undefined) throw new Error('nobody is there')
          return answer
        }),
        close: () => {},
      }),
    })
    const { registry } = member
    const database = await Database.open(store, { limits: DEFAULT_LIMITS, registry, onError: () => {} })
    this.#answers.set(url, member.answers)
    member.listens()
    const { role } = member.role
    const close = async (): Promise<void> => {
      await database.close()
      this.#answers.delete(url)
    }
    return { database, store, registry, ends, role, warnings, close }
  }
}
