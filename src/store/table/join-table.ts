import { randomBytes } from 'node:crypto'
import { newServerId } from '../../cluster/server-id.js'
import { TableRegistry } from '../../cluster/table-registry.js'
import { Backoff } from '../../coordinator/backoff.js'
import type { Clock } from '../../oracle/clock.js'
import { LeaderOracle } from '../../oracle/leader-oracle.js'
import type { OracleRow } from '../../oracle/oracle-row.js'
import type { OracleRole } from '../../oracle/oracle-state.js'
import { isReachedByOthers, PRESENCE, REACH, reach } from '../../oracle/reachability.js'
import { type Answering, type Asks, answering } from '../../oracle/signed-ask.js'
import { TIMESTAMPS } from '../../oracle/timestamp-ask.js'
import { CorruptRecord } from '../../percolator/codec/key.js'
import type { AnswerBudget } from '../answer-budget.js'
import { decodeFormat, type FoundLoss, misfitOf, printLoss, requireFit, type Serving } from './format/format-row.js'
import { noteLoss } from './format/table-loss.js'
import { RECORD, SECRET_BYTES } from './layout/layout.js'
import { recordAt } from './layout/record-at.js'
import { rowKeyOfSystem } from './layout/row-keys.js'
import type { Table } from './layout/table.js'
import { UnusableTable } from './layout/unusable-table.js'
import { registryRowsOf } from './records/registry-table.js'
import { TableWatch } from './records/table-watch.js'
import { RestoreGate } from './restore/restore-gate.js'
import { TableBehindRestoreGate } from './restore/table-behind-restore-gate.js'
import { TableStore, type TableStoreOptions } from './table-store.js'
import { LeadingGraph } from './waits/leading-graph.js'
import { reportToLeader } from './waits/report-to-leader.js'
import { LOCK_WAITS } from './waits/wait-report.js'
import { WaitReports } from './waits/wait-reports.js'

/** For rows that are guessed rather than read. */
const CACHE_BYTES_MAX = 64 * 1024 * 1024

/** After this time, the waits are reported to whichever server leads then. */
const WAIT_ASK_MS_MAX = 1000

export interface Member {
  readonly id: string
  readonly registry: TableRegistry
  readonly role: OracleRole
  /** The questions of other servers that it answers. They throw KvError `overloaded`, `storage_unavailable`. */
  readonly answers: readonly Answering[]
  /** To be called once the answers can be asked for. */
  listens(): void
}

/** What a server has to tell and to hear, whatever the engine. */
export interface JoinCallbacks {
  readonly url: string
  readonly answers: AnswerBudget
  readonly onRole: (message: string) => void
  /** Called with what keeps timestamps from being handed out, and when that is over. */
  readonly onTimestamps: (message: string) => void
  /** Called with one line when this server must not serve the table any more: it refuses all calls, and should be closed. */
  readonly onEnd: (message: string) => void
}

export interface JoinOptions extends JoinCallbacks {
  readonly serving: Serving
  readonly clock: Clock
  readonly registeringMs?: number | undefined
  /** For tests. */
  readonly logs?: TableStoreOptions['logs']
  /** Fulfilled when the engine finds that the table lacks what this server has committed. */
  readonly lost?: Promise<FoundLoss> | undefined
  /** Calls with the table, also when `table` refuses all because of a loss. */
  readonly apart?: ((body: (table: Table) => Promise<void>) => Promise<void>) | undefined
  /** @param secret shared by the servers of the table. */
  readonly asksOf: (secret: Uint8Array) => Asks
}

/**
 * Makes this process one of the servers of a table.
 * @param table must exist.
 * @throws UnusableTable when the table can't be served from; KvError `storage_unavailable`.
 */
export async function joinTable(table: Table, options: JoinOptions): Promise<{ store: TableStore; member: Member }> {
  const { serving, url, answers, onRole, onTimestamps, onEnd, clock, registeringMs, logs, asksOf, lost } = options
  const { apart = (body) => body(table) } = options
  await requireFit(table, serving) // Before anything is written.
  const secret = await secretOf(table)
  const restoreGate = new RestoreGate(table, {
    onEnd,
    misfitOf: (format) => format && misfitOf(decodeFormat(format), serving),
  })
  await restoreGate.start().catch((error: unknown) => {
    if (!(error instanceof CorruptRecord)) throw error
    throw new UnusableTable('the record of a restore or of the format in the table is damaged: run perkv store check', {
      cause: error,
    })
  })
  const { ask, close } = asksOf(secret)
  const id = newServerId()
  const served = new TableBehindRestoreGate(table, restoreGate)
  const closing = new AbortController()
  let isListening = false
  const oracle = new LeaderOracle({
    ...{ row: oracleRowOf(served), url, clock, id, onChange: onRole, onWarning: onTimestamps },
    forward: (url, asked, signal) => ask(TIMESTAMPS, url, asked, signal),
    others: () => registry.others(),
    async isReached(silent) {
      if (!isListening) return undefined // A server needs a timestamp before it listens.
      const others = registry.others().map((other) => other.url)
      return isReachedByOthers(
        ask,
        url,
        others.filter((other) => other !== silent),
      )
    },
  })
  const endOf = (why: string): string => `${serving.place}: ${why}; this server ends`
  const end = (why: string): void => restoreGate.end(endOf(why))
  const registry = new TableRegistry({
    ...{ rows: registryRowsOf(served), id, url, format: serving.newest.format, elapsedMs: () => clock.elapsedMs() },
    ofLeader: () => oracle,
    onTwin: (twin) =>
      end(`another living server, ${twin}, is reached at ${url} too: give each server an --advertise of its own`),
  })
  /** This server refuses everything at once. The table says it before this one ends, so that none starts that knows nothing of it. */
  const endOfLoss = (loss: FoundLoss): void => {
    restoreGate.refuse(endOf(printLoss(loss.why, serving.place)))
    const note = (): Promise<void> => apart((reached) => noteLoss(reached, serving, { ...loss, ...oracle.known }))
    void untilDone(note, closing.signal, onTimestamps).then(
      () => end(printLoss(loss.why, serving.place)),
      () => {}, // The server is closed before.
    )
  }
  const onSetBack = (why: string): void => endOfLoss({ why, isDoubt: false })
  const watch = new TableWatch({ table, secret, onAnother: end, onSetBack })
  void lost?.then(endOfLoss)
  await registry.look()
  oracle.start()
  watch.start()
  const leading = new LeadingGraph(() => (oracle.role.role === 'leader' ? oracle.role.epoch : undefined))
  const send = reportToLeader({
    ...{ id, leading },
    role: () => oracle.role,
    ask: (url, asked) => ask(LOCK_WAITS, url, asked, AbortSignal.timeout(WAIT_ASK_MS_MAX)),
  })
  const store = new TableStore({
    ...{ table, oracle, watch, clock, answers, restoreGate, registeringMs, logs },
    cursorSecret: secret,
    cacheBytesMax: CACHE_BYTES_MAX,
    waits: new WaitReports({ send }),
    onClose() {
      closing.abort(new Error('the table is closed'))
      close()
    },
  })
  await store.start()
  const member: Member = {
    id,
    registry,
    get role() {
      return oracle.role
    },
    answers: [
      answering(TIMESTAMPS, secret, url, (asked) => oracle.answer(asked)),
      answering(LOCK_WAITS, secret, url, async (asked) => leading.answer(asked)),
      answering(PRESENCE, secret, url, async () => true),
      answering(REACH, secret, url, ({ target }) => reach(ask, target)),
    ],
    listens() {
      isListening = true
    },
  }
  return { store, member }
}

/** @throws the reason of the signal. */
async function untilDone(note: () => Promise<void>, signal: AbortSignal, onWarning: (message: string) => void) {
  let isTold = false
  for (const backoff = new Backoff(250, 5000); ; await backoff.wait(undefined, signal))
    try {
      return await note()
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      if (!isTold) onWarning(`the table cannot be told yet that commits are lost, which this server waits for: ${why}`)
      isTold = true
    }
}

/** Made by the first server; others that start at the same time find it. It signs cursors, and the questions between servers. */
async function secretOf(table: Table): Promise<Buffer> {
  const key = rowKeyOfSystem('secret')
  for (let tries = 0; tries < 10; tries++) {
    const found = await recordAt(table, key)
    if (found?.length === SECRET_BYTES) return found
    if (found !== undefined) throw new UnusableTable('the secret in the table is damaged: its length is wrong')
    await table.change(key, { family: 'o', qualifier: RECORD, value: undefined }, [
      { family: 'o', qualifier: RECORD, value: randomBytes(SECRET_BYTES) },
    ])
  }
  throw new UnusableTable('the secret of the servers cannot be written into the table')
}

function oracleRowOf(table: Table): OracleRow {
  const key = rowKeyOfSystem('oracle')
  return {
    read: () => recordAt(table, key),
    swap(expected, next, withinMs) {
      const value = expected && Buffer.from(expected)
      const writes = [{ family: 'o', qualifier: RECORD, value: Buffer.from(next) }] as const
      return table.change(key, { family: 'o', qualifier: RECORD, value }, writes, withinMs)
    },
  }
}
