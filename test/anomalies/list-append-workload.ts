import { ConnectionError, type Db, isUncertain, KvError, type Txn, Undetermined } from '../../src/client/index.js'
import { HttpTransaction, type Isolation, isLost, type Mode, Refused } from './http-transaction.js'
import type { ListOp, ListTransaction } from './list-append.js'
import { Random } from './random.js'

/** A server that may go away and come back. */
export interface Target {
  readonly url: string
  /** Fulfilled while it is there. */
  isUp(): Promise<void>
}

export interface WorkloadOptions {
  readonly seed: number
  readonly mode: Mode
  readonly isolation: Isolation
  /** Given: some of the clients use it. */
  readonly db?: Db | undefined
  readonly clients?: number | undefined
  /** After each transaction, whatever became of it. */
  readonly onTransaction?: (() => void) | undefined
}

/** Where a read looked: the snapshot, a lock's latest version, or the transaction's own writes. */
type Source = 'snapshot' | 'latest' | 'own'
type LoggedOp = ListOp & { readonly source: Source }

interface Log {
  readonly name: string
  readonly ops: LoggedOp[]
  readonly begin: number
  end: number
  outcome: ListTransaction['outcome']
}

/** What the two kinds of client have in common. */
interface OpenLists {
  get(key: string): Promise<string | undefined>
  getForUpdate(key: string): Promise<string | undefined>
  getMany(keys: readonly string[]): Promise<(string | undefined)[]>
  scan(prefix: string): Promise<ReadonlyMap<string, string>>
  put(key: string, value: string): Promise<void>
}

type Step =
  | { readonly type: 'read' | 'read_for_update' | 'append' | 'append_unlocked'; readonly key: string }
  | { readonly type: 'read_many'; readonly keys: readonly string[] }
  | { readonly type: 'scan' }

/** How a transaction is to end. `hang_up`: commit, without hearing the answer. `abandon`: nothing, its TTL ends it. */
type Ending = 'commit' | 'rollback' | 'abandon' | 'hang_up'

/** Races that were lost, and a transaction that ended on its own. Anything else is a defect. */
const LOST_RACES: ReadonlySet<string> = new Set([
  'write_conflict',
  'key_locked',
  'lock_wait_timeout',
  'deadlock',
  'txn_not_found',
  'txn_lock_not_found',
  'pessimistic_lock_not_found',
  'pessimistic_lock_rolled_back',
  'ts_below_safe_point', // Where versions have a short life.
  'commit_ts_expired',
])

const CLIENTS = 8
const KEYS_ALIVE = 5
const APPENDS_PER_KEY = 12
const ABANDONED_TTL_MS = 20
const LIBRARY_RETRIES = 2

class GivenUp extends Error {}

/** Clients that append to lists and read them, all at once, and keep a record of what they saw. */
export class ListAppendWorkload {
  readonly #target: Target
  readonly #options: WorkloadOptions
  readonly #random: Random
  readonly #logs: Log[] = []
  readonly #prefix: string
  readonly #keys: { key: string; appends: number }[] = []
  #keysMade = 0
  #lastValue = 0
  #clock = 0
  #left = 0

  constructor(target: Target, options: WorkloadOptions) {
    this.#target = target
    this.#options = options
    this.#random = new Random(options.seed)
    this.#prefix = `list/${options.seed}/${options.mode}/${options.isolation}/`
    for (let i = 0; i < KEYS_ALIVE; i++) this.#keys.push(this.#newKey())
  }

  /** @param txns how many more to run. */
  async run(txns: number): Promise<void> {
    this.#left += txns
    const { clients = CLIENTS, db } = this.#options
    const runs = Array.from({ length: clients }, async (_, client) => {
      const random = this.#random.fork()
      while (this.#left-- > 0) {
        if (db !== undefined && client % 4 === 3) await this.#runInLibrary(db, random)
        else await this.#runOverHttp(random)
        this.#options.onTransaction?.()
      }
    })
    await Promise.all(runs)
  }

  /** Every list, in one transaction that begins after all others have ended. */
  async readAll(): Promise<void> {
    const log = this.#begin('the last')
    const txn = await HttpTransaction.begin(this.#target.url, this.#options)
    const lists = await txn.scan(this.#prefix)
    for (let i = 0; i < this.#keysMade; i++) this.#logRead(log, this.#key(i), lists.get(this.#key(i)), 'snapshot')
    await txn.commit()
    this.#end(log, 'committed')
  }

  get counts(): { transactions: number; committed: number; aborted: number; unknown: number; appends: number } {
    const count = (outcome: Log['outcome']): number => this.#logs.filter((log) => log.outcome === outcome).length
    return {
      transactions: this.#logs.length,
      committed: count('committed'),
      aborted: count('aborted'),
      unknown: count('unknown'),
      appends: this.#lastValue,
    }
  }

  /**
   * What the checker is to look at.
   *
   * Reads of the snapshot are consistent whatever becomes of their transaction: those of one that aborted are handed in
   * as a reader of its own. So are those of a pessimistic snapshot transaction: its locking reads and its writes are at
   * its commit, and promise nothing about what its snapshot saw.
   */
  history(): ListTransaction[] {
    const { mode, isolation } = this.#options
    return this.#logs.flatMap((log): ListTransaction[] => {
      const isSplit = log.outcome === 'aborted' || (mode === 'pessimistic' && isolation === 'snapshot')
      if (!isSplit) return [log]
      const isOfSnapshot = (op: LoggedOp): boolean => op.type === 'read' && op.source === 'snapshot'
      const reader = { ...log, ops: log.ops.filter(isOfSnapshot), outcome: 'committed' } as const
      const rest = { ...log, ops: log.ops.filter((op) => !isOfSnapshot(op)) }
      return [{ ...reader, name: `${log.name} (snapshot)` }, rest]
    })
  }

  // ---- One transaction

  async #runOverHttp(random: Random): Promise<void> {
    const steps = this.#plan(random)
    const ending = random.pick<Ending>([
      'commit',
      'commit',
      'commit',
      'commit',
      'commit',
      'rollback',
      'abandon',
      'hang_up',
    ])
    const stepsDone = ending === 'commit' || ending === 'hang_up' ? steps.length : random.below(steps.length + 1)
    const ttlMs = ending === 'abandon' ? ABANDONED_TTL_MS : undefined
    const log = this.#begin('')
    let txn: HttpTransaction | undefined
    let isCommitSent = false
    try {
      txn = await HttpTransaction.begin(this.#target.url, { ...this.#options, ttlMs })
      for (const step of steps.slice(0, stepsDone)) await this.#take(step, txn, log)
      isCommitSent = ending === 'commit' || ending === 'hang_up'
      if (ending === 'commit') await txn.commit()
      else if (ending === 'rollback') await txn.rollback()
      else if (ending === 'hang_up') await hangUp(txn)
      this.#end(log, ending === 'commit' ? 'committed' : ending === 'hang_up' ? 'unknown' : 'aborted')
    } catch (error) {
      if (isLost(error)) {
        // Nothing of an interactive transaction is on disk before it commits.
        this.#end(log, isCommitSent ? 'unknown' : 'aborted')
        await this.#target.isUp()
      } else {
        if (!(error instanceof Refused && LOST_RACES.has(error.code))) throw error
        this.#end(log, 'aborted')
        if (ending !== 'abandon') await txn?.rollback().catch(ignoreEnded)
      }
    }
  }

  async #runInLibrary(db: Db, random: Random): Promise<void> {
    const { mode, isolation } = this.#options
    const isGivenUp = random.chance(0.15)
    let log: Log | undefined
    // Until its function returns, nothing that an attempt did can take effect.
    let isReturned = false
    const body = async (txn: Txn): Promise<void> => {
      if (log !== undefined) this.#end(log, 'aborted')
      log = this.#begin(' (library)')
      isReturned = false
      for (const step of this.#plan(random)) await this.#take(step, ofLibrary(txn), log)
      if (isGivenUp) throw new GivenUp()
      isReturned = true
    }
    try {
      await db.transaction(body, { mode, isolation, retries: LIBRARY_RETRIES })
      if (log !== undefined) this.#end(log, 'committed')
    } catch (error) {
      const isRefused = error instanceof KvError
      if (log !== undefined) this.#end(log, isReturned && (!isRefused || isUncertain(error)) ? 'unknown' : 'aborted')
      if (error instanceof GivenUp || (isRefused && LOST_RACES.has(error.code))) return
      if (isRefused || !(error instanceof Undetermined || error instanceof ConnectionError)) throw error
      await this.#target.isUp()
    }
  }

  #plan(random: Random): Step[] {
    const { mode, isolation } = this.#options
    const isReader = random.chance(0.2)
    const anyKey = (): string => random.pick(this.#keys).key
    return Array.from({ length: 1 + random.below(5) }, (): Step => {
      const chance = random.next()
      if (chance < 0.12) return { type: 'scan' }
      if (chance < 0.25)
        return {
          type: 'read_many',
          keys: random
            .shuffled(this.#keys)
            .slice(0, 3)
            .map(({ key }) => key),
        }
      if (chance < 0.5 || isReader) return { type: 'read', key: anyKey() }
      if (chance < 0.6) return { type: 'read_for_update', key: anyKey() }
      // Writing on a plain read is safe where the read is checked at commit; a pessimistic snapshot does not check it.
      const isSafe = mode === 'optimistic' || isolation === 'serializable'
      return { type: isSafe && random.chance(0.5) ? 'append_unlocked' : 'append', key: anyKey() }
    })
  }

  async #take(step: Step, txn: OpenLists, log: Log): Promise<void> {
    const ofPlainRead = (key: string): Source => (hasAppended(log, key) ? 'own' : 'snapshot')
    const ofLockingRead = (key: string): Source =>
      hasAppended(log, key) ? 'own' : this.#options.mode === 'optimistic' ? 'snapshot' : 'latest'
    switch (step.type) {
      case 'read':
        this.#logRead(log, step.key, await txn.get(step.key), ofPlainRead(step.key))
        break
      case 'read_for_update':
        this.#logRead(log, step.key, await txn.getForUpdate(step.key), ofLockingRead(step.key))
        break
      case 'read_many': {
        const values = await txn.getMany(step.keys)
        step.keys.forEach((key, i) => {
          this.#logRead(log, key, values[i], ofPlainRead(key))
        })
        break
      }
      case 'scan': {
        const known = Array.from({ length: this.#keysMade }, (_, i) => this.#key(i))
        const lists = await txn.scan(this.#prefix)
        for (const key of known) this.#logRead(log, key, lists.get(key), ofPlainRead(key))
        break
      }
      case 'append':
      case 'append_unlocked': {
        const isLocking = step.type === 'append'
        const before = await (isLocking ? txn.getForUpdate(step.key) : txn.get(step.key))
        this.#logRead(log, step.key, before, (isLocking ? ofLockingRead : ofPlainRead)(step.key))
        const value = ++this.#lastValue
        log.ops.push({ type: 'append', key: step.key, value, source: 'own' })
        this.#countAppend(step.key)
        await txn.put(step.key, before ? `${before},${value}` : String(value))
      }
    }
  }

  // ---- The record

  #begin(kind: string): Log {
    const log: Log = {
      name: `T${this.#logs.length}${kind}`,
      ops: [],
      begin: ++this.#clock,
      end: Number.POSITIVE_INFINITY,
      outcome: 'unknown',
    }
    this.#logs.push(log)
    return log
  }

  #end(log: Log, outcome: Log['outcome']): void {
    log.outcome = outcome
    log.end = ++this.#clock
  }

  #logRead(log: Log, key: string, text: string | undefined, source: Source): void {
    const values = text === undefined || text === '' ? [] : text.split(',').map(Number)
    log.ops.push({ type: 'read', key, values, source })
  }

  #key(n: number): string {
    return `${this.#prefix}${String(n).padStart(6, '0')}`
  }

  #newKey(): { key: string; appends: number } {
    return { key: this.#key(this.#keysMade++), appends: 0 }
  }

  /** Lists stay short: one that is full gives way to a new one. */
  #countAppend(key: string): void {
    const index = this.#keys.findIndex((one) => one.key === key)
    const one = this.#keys[index]
    if (one !== undefined && ++one.appends === APPENDS_PER_KEY) this.#keys[index] = this.#newKey()
  }
}

function hasAppended(log: Log, key: string): boolean {
  return log.ops.some((op) => op.type === 'append' && op.key === key)
}

function ofLibrary(txn: Txn): OpenLists {
  return {
    get: (key) => txn.get(key),
    getForUpdate: (key) => txn.getForUpdate(key),
    getMany: (keys) => txn.batchGet(keys),
    put: (key, value) => txn.put(key, value),
    async scan(prefix) {
      const lists = new Map<string, string>()
      for await (const { key, value } of txn.scan({ prefix })) if (value !== undefined) lists.set(String(key), value)
      return lists
    },
  }
}

/** Sends the commit and goes away, before or after it arrives. */
async function hangUp(txn: HttpTransaction): Promise<void> {
  const hangsUp = new AbortController()
  const commit = txn.commit(hangsUp.signal).catch((error: unknown) => {
    if (!isLost(error) && !(error instanceof Refused)) throw error
  })
  await txn.get('list/none').catch(() => {}) // A round trip for the commit to set out in.
  hangsUp.abort()
  await commit
}

function ignoreEnded(error: unknown): void {
  if (!isLost(error) && !(error instanceof Refused && LOST_RACES.has(error.code))) throw error
}
