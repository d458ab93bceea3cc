import { ConnectionError, type Db, isUncertain, KvError, Undetermined } from '../../src/client/index.js'
import { HttpTransaction, ISOLATIONS, isLost, MODES, Refused, scanPairs } from './http-transaction.js'
import type { Target } from './list-append-workload.js'
import { PercolatorClient } from './percolator-client.js'
import { Random } from './random.js'

/**
 * A bank whose clients transfer money in every way that there is, and give up at every point that there is.
 *
 * Each transfer also writes an entry of its own into a ledger, so a snapshot can be told right from wrong: every balance
 * is what the entries say, to the cent, and so the total holds.
 */
export interface BankOptions {
  readonly seed: number
  readonly db?: Db | undefined
  readonly clients?: number | undefined
  readonly auditors?: number | undefined
  readonly onTransfer?: (() => void) | undefined
  /** Calls of the store may fail, so a server may not know what became of a request, and says so by 503. */
  readonly mayFail?: boolean | undefined
}

/** What the client knows of a transfer. */
type Outcome = 'committed' | 'aborted' | 'unknown'

const KINDS = ['two_pc', 'async_commit', 'one_pc', 'pessimistic', 'interactive', 'library'] as const
type Kind = (typeof KINDS)[number]

const ACCOUNTS = 6
const START_BALANCE = 100
const CLIENTS = 6
const AUDITORS = 2

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
])

/** The client is gone, and tells nobody. */
class Abandoned extends Error {
  constructor(readonly outcome: Outcome) {
    super('abandoned')
  }
}

/** Counts the steps of a transfer, and ends it for good before one of them. */
class Steps {
  taken = 0
  constructor(readonly abandonBefore: number) {}

  /** @param outcome of the transfer, should it end here. */
  next(outcome: Outcome): void {
    if (this.taken++ === this.abandonBefore) throw new Abandoned(outcome)
  }
}

interface Transfer {
  readonly entry: string
  readonly from: string
  readonly to: string
  readonly amount: number
}

/** What a snapshot shows. */
class WrongBooks extends Error {}

export class Bank {
  readonly counts = { transfers: 0, committed: 0, aborted: 0, unknown: 0, abandoned: 0, audits: 0 }
  readonly #target: Target
  readonly #options: BankOptions
  readonly #random: Random
  readonly #prefix: string
  readonly #outcomes = new Map<string, Outcome>()
  /** Snapshots taken before, to be looked at again. */
  readonly #audited: { ts: number; books: ReadonlyMap<string, string> }[] = []
  #left = 0
  #transferring = 0

  constructor(target: Target, options: BankOptions) {
    this.#target = target
    this.#options = options
    this.#random = new Random(options.seed)
    this.#prefix = `bank/${options.seed}/`
  }

  async open(): Promise<void> {
    const begin = { mode: 'optimistic', isolation: 'snapshot' } as const
    const txn = await HttpTransaction.begin(this.#target.url, begin)
    for (let i = 0; i < ACCOUNTS; i++) await txn.put(this.#account(i), String(START_BALANCE))
    await txn.commit()
  }

  /** @param transfers how many more. Auditors look on until the last is done. */
  async run(transfers: number): Promise<void> {
    this.#left += transfers
    const { clients = CLIENTS, auditors = AUDITORS, db } = this.#options
    this.#transferring = clients
    const kinds = db === undefined ? KINDS.filter((kind) => kind !== 'library') : KINDS
    const work = Array.from({ length: clients }, async (_, client) => {
      const random = this.#random.fork()
      try {
        while (this.#left-- > 0) {
          const kind = kinds[(this.counts.transfers + client) % kinds.length] as Kind
          await this.#transfer(kind, random)
          this.#options.onTransfer?.()
        }
      } finally {
        this.#transferring--
      }
    })
    const audits = Array.from({ length: auditors }, async () => {
      const random = this.#random.fork()
      while (this.#transferring > 0) await this.#audit(random)
    })
    const results = await Promise.allSettled([...work, ...audits])
    for (const result of results) if (result.status === 'rejected') throw result.reason
  }

  /** The state after all locks are resolved: the books, and whether what clients were told is so. */
  async close(): Promise<void> {
    const client = new PercolatorClient(this.#target.url)
    await client.resolveAll()
    // Others may be at work beside the bank.
    const range = { start: this.#prefix, end: `${this.#prefix}\u{10ffff}` }
    const all = { max_ts: Number.MAX_SAFE_INTEGER, ...range }
    const { locks } = await client.call<{ locks: unknown[] }>('scan_lock', all)
    if (locks.length > 0) throw new WrongBooks(`locks that cannot be resolved: ${JSON.stringify(locks)}`)
    const books = await scanPairs(`${this.#target.url}/v1/kv`, { prefix: this.#prefix })
    this.#check(books, 'at the end')
    for (const [entry, outcome] of this.#outcomes) {
      if (outcome === 'committed' && !books.has(entry)) throw new WrongBooks(`${entry} was committed, and is lost`)
      if (outcome === 'aborted' && books.has(entry)) throw new WrongBooks(`${entry} was aborted, and is there`)
    }
    for (const { ts, books: before } of this.#audited) await this.#auditAgain(ts, before)
  }

  // ---- Transfers

  async #transfer(kind: Kind, random: Random): Promise<void> {
    const number = ++this.counts.transfers
    const [from, to] = random.shuffled(Array.from({ length: ACCOUNTS }, (_, i) => this.#account(i)))
    const entry = `${this.#prefix}ledger/${String(number).padStart(6, '0')}-${kind}`
    const transfer: Transfer = { entry, from: from as string, to: to as string, amount: 1 + random.below(20) }
    const steps = new Steps(random.chance(0.5) ? random.below(9) : Number.POSITIVE_INFINITY)
    let outcome: Outcome
    try {
      outcome = await this.#run(kind, transfer, steps, random)
    } catch (error) {
      if (error instanceof Abandoned) {
        outcome = error.outcome
        this.counts.abandoned++
      } else {
        outcome = this.#isUnavailable(error) ? 'unknown' : outcomeOf(error)
        if (!(error instanceof Refused || error instanceof KvError)) await this.#target.isUp()
      }
    }
    this.#outcomes.set(entry, outcome)
    this.counts[outcome]++
  }

  #isUnavailable(error: unknown): boolean {
    return this.#options.mayFail === true && error instanceof Refused && error.code === 'storage_unavailable'
  }

  #run(kind: Kind, transfer: Transfer, steps: Steps, random: Random): Promise<Outcome> {
    if (kind === 'interactive') return this.#transferInteractively(transfer, steps, random)
    if (kind === 'library') return this.#transferInLibrary(transfer, random)
    if (kind === 'pessimistic') return this.#transferPessimistically(transfer, steps, random)
    return this.#transferOptimistically(kind, transfer, steps, random)
  }

  async #transferInteractively(transfer: Transfer, steps: Steps, random: Random): Promise<Outcome> {
    const [mode, isolation] = [random.pick(MODES), random.pick(ISOLATIONS)]
    const ttlMs = Number.isFinite(steps.abandonBefore) ? 20 : undefined
    const txn = await HttpTransaction.begin(this.#target.url, { mode, isolation, ttlMs })
    let isCommitSent = false
    try {
      const read = async (key: string): Promise<number> => {
        steps.next('aborted')
        return Number(await (mode === 'pessimistic' ? txn.getForUpdate(key) : txn.get(key)))
      }
      const write = async (key: string, value: string): Promise<void> => {
        steps.next('aborted')
        await txn.put(key, value)
      }
      for (const [key, value] of await newBalances(transfer, read)) await write(key, value)
      await write(transfer.entry, textOf(transfer))
      steps.next('aborted')
      isCommitSent = true
      await txn.commit()
      return 'committed'
    } catch (error) {
      if (error instanceof Refused) await txn.rollback().catch(() => {})
      if (isLost(error)) {
        await this.#target.isUp()
        return isCommitSent ? 'unknown' : 'aborted'
      }
      throw error
    }
  }

  async #transferInLibrary(transfer: Transfer, random: Random): Promise<Outcome> {
    const { db } = this.#options
    if (db === undefined) return 'aborted'
    const [mode, isolation] = [random.pick(MODES), random.pick(ISOLATIONS)]
    await db.transaction(
      async (txn) => {
        const read = async (key: string): Promise<number> => Number(await txn.getForUpdate(key))
        for (const [key, value] of await newBalances(transfer, read)) await txn.put(key, value)
        await txn.put(transfer.entry, textOf(transfer))
      },
      { mode, isolation, retries: 3 },
    )
    return 'committed'
  }

  async #transferOptimistically(
    kind: 'two_pc' | 'async_commit' | 'one_pc',
    transfer: Transfer,
    steps: Steps,
    random: Random,
  ): Promise<Outcome> {
    const client = new PercolatorClient(this.#target.url)
    steps.next('aborted')
    const startTs = await client.tso()
    const read = (key: string): Promise<number> =>
      client.resolving(async () => Number((await client.call<{ value: string }>('get', { key, ts: startTs })).value))
    const values = [...(await newBalances(transfer, read)), [transfer.entry, textOf(transfer)] as const]
    const mutations = random.shuffled(values).map(([key, value]) => ({ op: 'put', key, value }))
    return this.#decide(client, kind, { startTs, mutations, steps, random })
  }

  async #transferPessimistically(transfer: Transfer, steps: Steps, random: Random): Promise<Outcome> {
    const client = new PercolatorClient(this.#target.url)
    const startTs = await client.tso()
    const forUpdateTs = await client.tso()
    const primary = transfer.from
    const read = async (key: string): Promise<number> => {
      steps.next('aborted')
      const { results } = await client.resolving(() =>
        client.call<{ results: { value: string }[] }>('acquire_pessimistic_lock', {
          keys: [key],
          primary,
          start_ts: startTs,
          for_update_ts: forUpdateTs,
          lock_ttl: this.#ttl(random),
          is_first_lock: key === primary,
          wait_timeout: -1,
          return_values: true,
        }),
      )
      return Number(results[0]?.value)
    }
    const values = [...(await newBalances(transfer, read)), [transfer.entry, textOf(transfer)] as const]
    const mutations = values.map(([key, value]) => ({ op: 'put', key, value }))
    const kind = random.pick(['two_pc', 'async_commit', 'one_pc'] as const)
    return this.#decide(client, kind, { startTs, mutations, steps, random, forUpdateTs })
  }

  /** Prewrites and commits; the first of the mutations is the primary. */
  async #decide(
    client: PercolatorClient,
    kind: 'two_pc' | 'async_commit' | 'one_pc',
    {
      startTs: start_ts,
      mutations,
      steps,
      random,
      forUpdateTs,
    }: {
      readonly startTs: number
      readonly mutations: readonly { op: string; key: string; value: string }[]
      readonly steps: Steps
      readonly random: Random
      readonly forUpdateTs?: number
    },
  ): Promise<Outcome> {
    const keys = mutations.map(({ key }) => key)
    const [primary, ...secondaries] = keys as [string, ...string[]]
    const common = { primary, start_ts, lock_ttl: this.#ttl(random) }
    // The ledger's entry is nobody else's, and was never locked.
    const actions = (some: typeof mutations): object =>
      forUpdateTs === undefined
        ? {}
        : {
            for_update_ts: forUpdateTs,
            pessimistic_actions: some.map(({ key }) => (key.includes('/ledger/') ? 'skip' : 'do')),
          }
    const prewrite = (
      some: typeof mutations,
      rest: object,
    ): Promise<{ min_commit_ts?: number; one_pc_commit_ts?: number }> =>
      client.resolving(() => client.call('prewrite', { ...common, ...actions(some), ...rest, mutations: some }))
    /** Until the primary is committed or all is prewritten, there is no way to commit. */
    let decided: Outcome = 'aborted'
    try {
      if (kind === 'one_pc') {
        steps.next('aborted')
        decided = 'unknown'
        const { one_pc_commit_ts } = await prewrite(mutations, { try_one_pc: true })
        if (one_pc_commit_ts !== undefined) return 'committed'
        decided = 'aborted'
      } else {
        const minCommitTs: (number | undefined)[] = []
        const batches = random.chance(0.5) ? [mutations] : random.shuffled(mutations).map((mutation) => [mutation])
        for (const [i, batch] of batches.entries()) {
          steps.next('aborted')
          const isAsync = kind === 'async_commit'
          if (isAsync && i === batches.length - 1) decided = 'unknown'
          const hasPrimary = batch.some(({ key }) => key === primary)
          const rest = isAsync ? { use_async_commit: true, ...(hasPrimary ? { secondaries } : {}) } : {}
          minCommitTs.push((await prewrite(batch, rest)).min_commit_ts)
        }
        decided = 'aborted'
        if (kind === 'async_commit' && minCommitTs.every((ts) => ts !== undefined && ts > 0)) {
          decided = 'committed'
          steps.next(decided)
          const commit_ts = Math.max(...(minCommitTs as number[]))
          for (const key of random.shuffled(keys)) {
            await client.call('commit', { keys: [key], start_ts, commit_ts, primary })
            steps.next(decided)
          }
          return decided
        }
      }
      // All keys in one request, or the primary first and alone.
      const first = random.chance(0.5) ? keys : [primary]
      const rest = keys.slice(first.length)
      return await this.#commit(client, first, rest, { start_ts, steps, onSent: (outcome) => (decided = outcome) })
    } catch (error) {
      if (error instanceof Abandoned) throw error
      if (isLost(error)) {
        await this.#target.isUp()
        return decided
      }
      if (this.#isUnavailable(error)) return decided
      if (!(error instanceof Refused)) throw error
      if (decided === 'committed') throw error // Nothing may stand in the way of what is decided.
      if (random.chance(0.5)) await client.call('rollback', { keys, start_ts }).catch(() => {})
      throw error
    }
  }

  async #commit(
    client: PercolatorClient,
    first: readonly string[],
    rest: readonly string[],
    { start_ts, steps, onSent }: { start_ts: number; steps: Steps; onSent: (outcome: Outcome) => void },
  ): Promise<Outcome> {
    const [primary] = first
    for (;;) {
      steps.next('aborted')
      const commit_ts = await client.tso()
      try {
        onSent('unknown')
        await client.call('commit', { keys: first, start_ts, commit_ts, primary })
        onSent('committed')
        for (const key of rest) {
          steps.next('committed')
          await client.call('commit', { keys: [key], start_ts, commit_ts, primary })
        }
        return 'committed'
      } catch (error) {
        if (!(error instanceof Refused && error.code === 'commit_ts_expired')) throw error
        onSent('aborted')
      }
    }
  }

  /** Short ones are taken for dead while they live. */
  #ttl(random: Random): number {
    return random.pick([1, 20, 100])
  }

  // ---- Audits

  async #audit(random: Random): Promise<void> {
    const { url } = this.#target
    const { db } = this.#options
    const prefix = this.#prefix
    try {
      switch (random.below(5)) {
        case 0: {
          const client = new PercolatorClient(url)
          const ts = await client.tso()
          this.#check(await client.scan(prefix, ts), `raw, at ${ts}`)
          break
        }
        case 1: {
          const { start_ts: ts } = await beginAnd(
            url,
            (txn) => txn.scan(prefix),
            (books) => this.#check(books, 'interactive'),
          )
          if (this.#audited.length < 20)
            this.#audited.push({ ts, books: await scanPairs(`${url}/v1/kv`, { prefix, ts: String(ts) }) })
          break
        }
        case 2:
          // Account by account, over many requests.
          await beginAnd(
            url,
            async (txn) => {
              const books = new Map<string, string>()
              for (let i = 0; i < ACCOUNTS; i++) books.set(this.#account(i), (await txn.get(this.#account(i))) ?? '')
              for (const [key, value] of await txn.scan(`${prefix}ledger/`)) books.set(key, value)
              return books
            },
            (books) => this.#check(books, 'account by account'),
          )
          break
        case 3: {
          if (db === undefined) break
          const books = new Map<string, string>()
          for await (const { key, value } of (await db.snapshot()).scan({ prefix }))
            books.set(String(key), String(value))
          this.#check(books, 'library')
          break
        }
        case 4: {
          const again = this.#audited.length > 0 ? random.pick(this.#audited) : undefined
          if (again !== undefined) await this.#auditAgain(again.ts, again.books)
        }
      }
      this.counts.audits++
    } catch (error) {
      if (error instanceof Refused && LOST_RACES.has(error.code)) return // The transaction or its wait ended.
      if (error instanceof KvError && LOST_RACES.has(error.code)) return
      if (!isLost(error) && !(error instanceof ConnectionError)) throw error
      await this.#target.isUp()
    }
  }

  /** What was seen at a timestamp is seen there until it is refused because it is old. */
  async #auditAgain(ts: number, before: ReadonlyMap<string, string>): Promise<void> {
    let books: ReadonlyMap<string, string>
    try {
      books = await scanPairs(`${this.#target.url}/v1/kv`, { prefix: this.#prefix, ts: String(ts) })
    } catch (error) {
      if (error instanceof Refused && error.code === 'ts_below_safe_point') return
      throw error
    }
    const changed = [...books].filter(([key, value]) => before.get(key) !== value)
    if (changed.length > 0 || books.size !== before.size)
      throw new WrongBooks(`the snapshot at ${ts} has changed: ${JSON.stringify(changed)}`)
  }

  /** @throws WrongBooks */
  #check(books: ReadonlyMap<string, string>, where: string): void {
    const balances = new Map(Array.from({ length: ACCOUNTS }, (_, i) => [this.#account(i), START_BALANCE]))
    for (const [key, value] of books) {
      if (!key.includes('/ledger/')) continue
      const [from = '', to = '', amount = ''] = value.split('>')
      balances.set(from, (balances.get(from) ?? 0) - Number(amount))
      balances.set(to, (balances.get(to) ?? 0) + Number(amount))
    }
    for (const [account, balance] of balances) {
      if (Number(books.get(account)) === balance) continue
      const found = books.get(account)
      throw new WrongBooks(`${where}: ${account} has ${found}, and ${balance} by its ${books.size - ACCOUNTS} entries`)
    }
  }

  #account(i: number): string {
    return `${this.#prefix}account/${i}`
  }
}

async function beginAnd(
  url: string,
  read: (txn: HttpTransaction) => Promise<ReadonlyMap<string, string>>,
  check: (books: ReadonlyMap<string, string>) => void,
): Promise<{ start_ts: number }> {
  const txn = await HttpTransaction.begin(url, { mode: 'optimistic', isolation: 'snapshot' })
  check(await read(txn))
  await txn.commit()
  return { start_ts: txn.startTs }
}

async function newBalances(
  { from, to, amount }: Transfer,
  read: (key: string) => Promise<number>,
): Promise<[key: string, value: string][]> {
  const before = await read(from)
  const after = await read(to)
  return [
    [from, String(before - amount)],
    [to, String(after + amount)],
  ]
}

function textOf({ from, to, amount }: Transfer): string {
  return `${from}>${to}>${amount}`
}

/** Of a transfer whose last call failed so. */
function outcomeOf(error: unknown): Outcome {
  if (error instanceof Refused || error instanceof KvError) {
    if (!LOST_RACES.has(error.code)) throw error
    return 'aborted'
  }
  if (isLost(error)) return 'aborted' // Before anything was decided: `#decide` knows of the rest.
  if ((error instanceof Undetermined || error instanceof ConnectionError) && isUncertain(error)) return 'unknown'
  throw error
}
