import { expect, vi } from 'vitest'
import { isKvError } from '../../../../src/errors/kv-error.js'
import { WakeUps } from '../../../../src/store/table/layout/wake-ups.js'
import { LogReader, RemovedLog } from '../../../../src/store/table/log/log-reader.js'
import type { CommittedTxn } from '../../../../src/store/table/log/log-record.js'
import { CLOSED, ServerLog } from '../../../../src/store/table/log/server-log.js'
import type { Timestamp } from '../../../../src/timestamp.js'
import { MemoryBroadcast } from '../memory-broadcast.js'
import { type Fate, MemoryTable } from '../memory-table.js'
import { PausableTable } from '../pausable-table.js'

/** Timestamps per millisecond. */
const PER_MS = 16
const CHUNK_ENTRIES_MAX = 4

type Primary =
  | { readonly state: 'locked' | 'rolled back' }
  | { readonly state: 'committed'; readonly commitTs: Timestamp }

export interface SimulatedTxn {
  readonly keys: number
  /** Between its commit_ts and the request to commit. */
  readonly thinkMs: number
  /** Between the decision in the log and the change of the primary. */
  readonly restMs: number
  readonly change: 'done' | 'lost' | 'never'
  /** Its commit_ts is made up, so far ahead of the oracle. */
  readonly aheadMs: number
  /** Asks a second server at the same time. */
  readonly twice: boolean
}

interface Server {
  readonly table: PausableTable
  readonly log: ServerLog
}

/** Servers with logs, and readers of these, on one table. Time leaps where nothing is in flight. */
export class SimulatedLogs {
  readonly table: MemoryTable
  readonly committed: CommittedTxn[] = []
  readonly readers: SimulatedReader[] = []
  readonly wrong: string[] = []
  readonly counts = { committed: 0, ended: 0, expired: 0, unavailable: 0 }
  readonly #servers: Server[] = []
  readonly #primaries = new Map<Timestamp, Primary>()
  readonly #collectors: LogReader[] = []
  #collected: Timestamp = 0
  #ts = 1000
  #atMs = performance.now()

  readonly #delayMs: () => number
  readonly #broadcast: MemoryBroadcast | undefined
  readonly #wakeUps: WakeUps

  /** @param delayMs twice per call. @param isPrompt whether readers can tell servers that they wait. */
  constructor(fate: () => Fate, delayMs: () => number, isPrompt: boolean) {
    this.table = new MemoryTable(fate, () => 1, delayMs)
    this.#delayMs = delayMs
    this.#broadcast = isPrompt ? new MemoryBroadcast() : undefined
    this.#wakeUps = new WakeUps(this.#broadcast)
  }

  // ---- What servers share

  get last(): Timestamp {
    const ms = Math.floor(performance.now() - this.#atMs)
    this.#atMs += ms
    this.#ts += ms * PER_MS
    return this.#ts
  }

  readonly next = async (): Promise<Timestamp> => {
    await this.#pass()
    const ts = this.last + 1
    this.#ts = ts
    await this.#pass()
    return ts
  }

  readonly end = async ({ startTs, commitTs, keys }: CommittedTxn): Promise<Timestamp> => {
    this.counts.ended++
    await this.#pass()
    if (startTs === commitTs) this.#remove({ startTs, commitTs, keys })
    let primary = this.#primaries.get(startTs)
    if (primary?.state !== 'committed') primary = { state: 'rolled back' }
    this.#primaries.set(startTs, primary)
    await this.#pass()
    return primary.state === 'committed' ? primary.commitTs : 0
  }

  #commitPrimary(txn: CommittedTxn): void {
    if (this.#primaries.get(txn.startTs)?.state === 'locked') this.#committed(txn)
  }

  /** A delete_range, which may be done again. */
  #remove(txn: CommittedTxn): void {
    if (!this.#primaries.has(txn.startTs)) this.#committed(txn)
  }

  #committed(txn: CommittedTxn): void {
    const { startTs, commitTs } = txn
    this.#primaries.set(startTs, { state: 'committed', commitTs })
    for (const { resolved } of this.readers)
      if (commitTs <= resolved) this.wrong.push(`a commit at ${commitTs} after ${resolved} was closed`)
    this.committed.push(txn)
    this.counts.committed++
  }

  async #pass(): Promise<void> {
    await sleep(this.#delayMs())
  }

  // ---- Servers

  server(i: number): Server {
    const known = this.#servers[i]
    if (known !== undefined) return known
    const table = new PausableTable(this.table)
    const source = this.#sourceOf(table)
    const wakeUps = new WakeUps(this.#broadcast)
    const log = new ServerLog({ table, source, chunkEntriesMax: CHUNK_ENTRIES_MAX, wakeUps })
    const server = { table, log }
    this.#servers[i] = server
    return server
  }

  /** It stands still for ever, wherever it is. The next one in its place begins a log of its own. */
  kill(i: number): void {
    const { table } = this.server(i)
    table.pause()
    table.goOn = () => {} // It may stand still for a time already.
    delete this.#servers[i]
  }

  async stop(i: number): Promise<void> {
    await this.server(i).log.close()
    delete this.#servers[i]
  }

  /** What each server knows of the newest timestamp is what it was answered. */
  #sourceOf(table: PausableTable) {
    let last = 0
    const going = (): Promise<unknown> => table.rows({ keys: [], columns: [] })
    return {
      get last() {
        return last
      },
      next: async (): Promise<Timestamp> => {
        await going()
        const ts = await this.next()
        await going()
        last = Math.max(last, ts)
        return ts
      },
    }
  }

  async run(i: number, txn: SimulatedTxn): Promise<void> {
    const startTs = await this.next()
    this.#primaries.set(startTs, { state: 'locked' })
    const keys = Array.from({ length: txn.keys }, (_, key) => Buffer.from(`${startTs}/${key}`))
    for (let tries = 0; tries < 10; tries++) {
      const commitTs = (await this.next()) + txn.aheadMs * PER_MS
      await sleep(txn.thinkMs)
      const commit = { startTs, commitTs, keys, primary: keys[0] as Buffer }
      const asked = txn.twice ? [i, i + 1] : [i]
      const answers = await Promise.all(asked.map((at) => this.#commit(this.server(at), commit, txn)))
      if (!answers.includes('again')) return
    }
  }

  async remove(i: number, { restMs, change }: Pick<SimulatedTxn, 'restMs' | 'change'>): Promise<void> {
    for (let tries = 0; tries < 10; tries++) {
      const ts = await this.next()
      const primary = Buffer.from(`${ts}/from`)
      const txn = { startTs: ts, commitTs: ts, keys: [primary, Buffer.from(`${ts}/to`)] }
      const { table, log } = this.server(i)
      try {
        const settle = await log.decide({ ...txn, primary })
        await sleep(restMs)
        await table.rows({ keys: [], columns: [] }) // A server that stands still goes on here.
        if (change === 'never') return
        this.#remove(txn)
        settle(true)
        return
      } catch (error) {
        if (isKvError(error, 'commit_ts_expired')) continue
        if (!isKvError(error, 'storage_unavailable')) this.wrong.push(String(error))
        return
      }
    }
  }

  async #commit(
    { table, log }: Server,
    commit: CommittedTxn & { readonly primary: Buffer },
    { restMs, change }: SimulatedTxn,
  ): Promise<'again' | 'over'> {
    const { startTs, commitTs, keys } = commit
    try {
      const settle = await log.decide(commit)
      await sleep(restMs)
      await table.rows({ keys: [], columns: [] }) // A server that stands still goes on here.
      if (change === 'never') return 'over'
      await this.#pass()
      this.#commitPrimary({ startTs, commitTs, keys })
      if (change === 'lost') {
        await this.end(commit)
        await table.rows({ keys: [], columns: [] })
      }
      const primary = this.#primaries.get(startTs)
      settle(primary?.state === 'committed' && primary.commitTs === commitTs)
      return 'over'
    } catch (error) {
      if (isKvError(error, 'commit_ts_expired')) this.counts.expired++
      else if (isKvError(error, 'storage_unavailable')) this.counts.unavailable++
      else this.wrong.push(String(error))
      return isKvError(error, 'commit_ts_expired') ? 'again' : 'over'
    }
  }

  // ---- Readers

  /** Removes what all readers have passed, by one of two servers, which looks at the logs at no other time. */
  async collect(i: number): Promise<void> {
    const passed = Math.min(...this.readers.map(({ position }) => position))
    if (passed === Number.POSITIVE_INFINITY) return
    this.#collected = Math.max(this.#collected, passed)
    this.#collectors[i] ??= new LogReader({ table: this.table, source: this, end: this.end })
    try {
      await this.#collectors[i].trim(passed)
      await this.#collectors[i].sweep()
    } catch (error) {
      if (!isKvError(error, 'storage_unavailable')) this.wrong.push(String(error))
    }
  }

  /** Servers close more at once for a while. */
  follow(): void {
    this.#wakeUps.listenAWhile(CLOSED, () => {})
  }

  reader(): SimulatedReader {
    const reader = new SimulatedReader(this, this.#collected)
    this.readers.push(reader)
    return reader
  }

  // ---- Time

  /** Until `ms` have passed. */
  async leap(ms: number): Promise<void> {
    for (const endMs = performance.now() + ms; performance.now() < endMs; ) {
      do for (let i = 0; i < 4; i++) await new Promise((next) => setImmediate(next))
      while (this.table.inFlight.calls > 0)
      vi.advanceTimersToNextTimer()
    }
  }
}

/** Follows all logs from a timestamp on. */
export class SimulatedReader {
  readonly seen: CommittedTxn[] = []
  position: Timestamp
  readonly reader: LogReader
  failure: unknown
  isStopped = false

  constructor(
    readonly logs: SimulatedLogs,
    readonly since: Timestamp,
  ) {
    this.position = since
    this.reader = new LogReader({ table: logs.table, source: logs, end: logs.end })
  }

  get resolved(): Timestamp {
    return this.reader.resolved
  }

  async follow(everyMs: () => number): Promise<void> {
    try {
      for (; !this.isStopped; await sleep(everyMs())) await this.read()
    } catch (error) {
      if (!isKvError(error, 'storage_unavailable') && !(error instanceof RemovedLog)) this.failure = error
      else await this.follow(everyMs)
    }
  }

  async read(): Promise<void> {
    this.logs.follow()
    const resolved = await this.reader.poll()
    for await (const { txns, upTo } of this.reader.pages(this.position, resolved)) {
      for (const { commitTs } of txns) {
        expect(commitTs).toBeGreaterThan(this.position)
        expect(commitTs).toBeLessThanOrEqual(upTo)
      }
      expect(upTo).toBeLessThanOrEqual(resolved)
      this.seen.push(...txns)
      this.position = upTo
    }
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
