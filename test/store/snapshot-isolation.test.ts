import { rm } from 'node:fs/promises'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { isKvError, KvError } from '../../src/errors/kv-error.js'
import type { LockInfo } from '../../src/errors/lock-info.js'
import type { PrewriteMutation, PrewriteRequest } from '../../src/percolator/api.js'
import { openLevelDbStore } from '../../src/store/leveldb/leveldb-store.js'
import type { Store } from '../../src/store/store.js'
import { physicalMs, TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import { makeDirectory, TappedEngine, TestClock, text, utf8, WriteGate } from './support.js'

/**
 * Random histories of several coordinators against the obvious model. Each step of a history lets one coordinator make
 * its next call, or lets the oldest held write reach the engine, and then waits until nothing moves any more: so a history
 * is its list of choices, and a failure replays from the seed that fast-check prints.
 */

/** More of them: CI=1 PERKV_TEST_RUNS=2000 npx vitest run test/store/snapshot-isolation.test.ts --test-timeout=600000 */
const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 60)

// ---- Histories

const KEYS = 3
type Mode = 'two_pc' | 'async' | 'one_pc'
type Read = { readonly type: 'get' | 'latest'; readonly key: number } | { readonly type: 'scan' | 'reverse' | 'batch' }
interface Program {
  readonly mode: Mode
  readonly reads: readonly Read[]
  readonly writes: readonly {
    readonly key: number
    readonly op: 'put' | 'delete' | 'insert' | 'lock'
    readonly isLong: boolean
  }[]
  /** Secondaries in a request of their own; before the primary if `last`. */
  readonly primary: 'together' | 'first' | 'last'
  /** Stops for good after so many calls. */
  readonly abandonsAfter: number | undefined
  /** Rolls back what it could have committed; with 1PC, before its prewrite gets through. */
  readonly changesItsMind: boolean
  /** Short ones are taken for dead while they live. */
  readonly ttlMs: number
  /** Sends every prewrite and commit twice, as after a lost answer. */
  readonly repeats: boolean
  /** Sends its prewrite once more at the very end, as a network does that held it back. */
  readonly isLate: boolean
  /** Lets readers push its commit. */
  readonly canBePushed: boolean
}
const program: fc.Arbitrary<Program> = fc.record({
  mode: fc.constantFrom<Mode>('two_pc', 'async', 'one_pc'),
  reads: fc.array(
    fc.oneof(
      fc.record({ type: fc.constantFrom('get' as const, 'get' as const, 'latest' as const), key: fc.nat(KEYS - 1) }),
      fc.record({ type: fc.constantFrom('scan' as const, 'reverse' as const, 'batch' as const) }),
    ),
    { maxLength: 3 },
  ),
  writes: fc.uniqueArray(
    fc.record({
      key: fc.nat(KEYS - 1),
      op: fc.constantFrom(
        'put' as const,
        'put' as const,
        'put' as const,
        'delete' as const,
        'insert' as const,
        'lock' as const,
      ),
      isLong: fc.boolean(),
    }),
    { maxLength: 3, selector: ({ key }) => key },
  ),
  primary: fc.constantFrom('together' as const, 'first' as const, 'last' as const),
  abandonsAfter: fc.oneof(
    { weight: 3, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: fc.integer({ min: 1, max: 9 }) },
  ),
  changesItsMind: fc.constantFrom(false, false, false, false, true),
  ttlMs: fc.constantFrom(2, 60),
  repeats: fc.boolean(),
  isLate: fc.boolean(),
  canBePushed: fc.boolean(),
})
/** Each client runs its transactions one after another. */
const clients = fc.array(fc.array(program, { minLength: 1, maxLength: 3 }), { minLength: 2, maxLength: 4 })
const choices = fc.array(fc.nat(999), { minLength: 40, maxLength: 200, size: 'max' })

// ---- Coordinators

const LONG = 'x'.repeat(300)
const RETRIES = 6

interface Seen {
  readonly key: string
  readonly value: string | undefined
}
interface Latest extends Seen {
  readonly commitTs: Timestamp
  /** The newest commit of the key that was acknowledged before the read began. */
  readonly atLeast: Timestamp
}
interface Txn {
  readonly startTs: Timestamp
  readonly primary: string | undefined
  readonly writes: ReadonlyMap<string, { readonly op: string; readonly value: string | undefined }>
  readonly reads: Seen[]
  readonly latest: Latest[]
  /** What the client knows. */
  outcome: 'unknown' | 'rolled_back' | { readonly commitTs: Timestamp }
  /** Keys that an `insert` found taken. */
  readonly taken: string[]
}

class Abandoned extends Error {}
class Aborted extends Error {}

/** One history: who may move, and what everybody knows. */
class History {
  readonly txns: Txn[] = []
  /** The newest acknowledged commit, of anything and of each key. */
  acknowledged: Timestamp = 0
  readonly acknowledgedOf = new Map<string, Timestamp>()
  readonly #waiting: { readonly client: number; readonly go: () => void }[] = []

  constructor(
    readonly store: Store,
    readonly prefix: string,
  ) {}

  key(n: number): string {
    return `${this.prefix}${n}`
  }

  /** Fulfilled when the schedule picks this client. */
  turn(client: number): Promise<void> {
    return new Promise((go) => {
      this.#waiting.push({ client, go })
    })
  }

  /** Clients that wait for their turn, in an order that does not depend on timing. */
  get ready(): readonly { readonly client: number; readonly go: () => void }[] {
    return this.#waiting.sort((a, b) => a.client - b.client)
  }

  pick(index: number): void {
    this.#waiting.splice(index, 1)[0]?.go()
  }
}

/** A Percolator client, as in the paper's section 2.2 and TiKV's client-go. */
class Coordinator {
  #callsLeft = Number.POSITIVE_INFINITY

  constructor(
    readonly history: History,
    readonly client: number,
  ) {}

  async run(programs: readonly Program[]): Promise<void> {
    for (const each of programs) {
      this.#callsLeft = each.abandonsAfter ?? Number.POSITIVE_INFINITY
      try {
        await this.#runOne(each)
      } catch (error) {
        if (!(error instanceof Abandoned || error instanceof Aborted)) throw error
      }
    }
  }

  async #call<T>(call: (store: Store) => Promise<T> | T): Promise<T> {
    if (this.#callsLeft-- <= 0) throw new Abandoned()
    await this.history.turn(this.client)
    return call(this.history.store)
  }

  async #runOne(program: Program): Promise<void> {
    const { history } = this
    const known = history.acknowledged
    const startTs = await this.#call((store) => store.tso(1))
    expect(startTs).toBeGreaterThanOrEqual(known) // Who starts after an answer sees its commit.
    const writes = new Map<string, { op: string; value: string | undefined }>()
    const mutations = program.writes.map(({ key, op, isLong }): PrewriteMutation => {
      const value = op === 'put' || op === 'insert' ? `${startTs} wrote ${key}${isLong ? LONG : ''}` : undefined
      writes.set(history.key(key), { op, value })
      return { op, key: utf8(history.key(key)), value: value === undefined ? undefined : utf8(value) }
    })
    const primary = mutations[0] === undefined ? undefined : text(mutations[0].key)
    const txn: Txn = { startTs, primary, writes, reads: [], latest: [], outcome: 'unknown', taken: [] }
    history.txns.push(txn)
    for (const read of program.reads) await this.#read(txn, read)
    if (mutations.length > 0) await this.#write(txn, program, mutations)
  }

  // -- Reads

  async #read(txn: Txn, read: Read): Promise<void> {
    const { history } = this
    const { startTs: ts } = txn
    const [start, end] = [utf8(history.prefix), utf8(`${history.prefix}~`)]
    const all = Array.from({ length: KEYS }, (_, n) => history.key(n))
    if (read.type === 'latest') {
      const key = history.key(read.key)
      let atLeast = 0
      const answer = await this.#resolving(txn, () =>
        this.#call((store) => {
          atLeast = history.acknowledgedOf.get(key) ?? 0
          return store.get({ key: utf8(key) })
        }),
      )
      const seen = answer.found
        ? { value: text(answer.value), commitTs: answer.commitTs }
        : { value: undefined, commitTs: 0 }
      txn.latest.push({ key, atLeast, ...seen })
    } else if (read.type === 'get') {
      const key = history.key(read.key)
      const answer = await this.#resolving(txn, () => this.#call((store) => store.get({ key: utf8(key), ts })))
      txn.reads.push({ key, value: answer.found ? text(answer.value) : undefined })
    } else {
      const { pairs } = await this.#resolving(txn, () =>
        this.#call((store) =>
          read.type === 'batch'
            ? store.batchGet({ keys: all.map(utf8), ts })
            : store.scan({ start, end, limit: 100, ts, reverse: read.type === 'reverse' }),
        ),
      )
      const found = new Map(pairs.map(({ key, value }) => [text(key), text(value ?? utf8('?'))]))
      expect(found.size).toBe(pairs.length)
      if (read.type !== 'batch') {
        const inOrder = [...found.keys()].sort()
        expect(pairs.map(({ key }) => text(key))).toEqual(read.type === 'scan' ? inOrder : inOrder.reverse())
      }
      for (const key of all) txn.reads.push({ key, value: found.get(key) })
    }
  }

  /** Runs a call until no lock is in its way. */
  async #resolving<T>(
    txn: { readonly startTs: Timestamp },
    body: () => Promise<T>,
    retries = Number.POSITIVE_INFINITY,
  ): Promise<T> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await body()
      } catch (error) {
        if (!isKvError(error, 'key_locked') || attempt >= retries) throw error
        for (const lock of locksOf(error)) await this.#resolve(lock, txn.startTs)
      }
    }
  }

  async #resolve(lock: LockInfo, callerStartTs: Timestamp): Promise<void> {
    const currentTs = await this.#call((store) => store.tso(1))
    const isExpired = physicalMs(lock.startTs) + lock.ttl < physicalMs(currentTs)
    const check = {
      primary: lock.primary,
      lockTs: lock.startTs,
      callerStartTs,
      currentTs,
      rollbackIfNotExist: isExpired,
    }
    let commitTs: Timestamp | 'alive' = 'alive'
    try {
      const status = await this.#call((store) => store.checkTxnStatus(check))
      if (status.status !== 'locked') commitTs = status.commitTs
      else if (status.lock?.useAsyncCommit && isExpired) commitTs = await this.#resolveAsync(status.lock, check)
    } catch (error) {
      if (!isKvError(error, 'txn_not_found')) throw error // Its primary may still come.
    }
    if (commitTs === 'alive') return
    const txns = [{ startTs: lock.startTs, commitTs }]
    const keys = currentTs % 2 === 0 ? [lock.key] : undefined
    await this.#call((store) => store.resolveLock({ txns, keys }))
  }

  async #resolveAsync(
    primary: LockInfo,
    check: { primary: Uint8Array; lockTs: Timestamp; callerStartTs: Timestamp; currentTs: Timestamp },
  ): Promise<Timestamp | 'alive'> {
    let commitTs = primary.minCommitTs
    if (primary.secondaries.length > 0) {
      const keys = primary.secondaries
      const answer = await this.#call((store) => store.checkSecondaryLocks({ keys, startTs: primary.startTs }))
      if (answer.locks.some(({ useAsyncCommit }) => !useAsyncCommit)) {
        const forced = await this.#call((store) =>
          store.checkTxnStatus({ ...check, forceSyncCommit: true, rollbackIfNotExist: true }),
        )
        return forced.status === 'locked' ? 'alive' : forced.commitTs
      }
      if (answer.commitTs > 0) commitTs = answer.commitTs
      else if (answer.locks.length < keys.length) commitTs = 0
      else commitTs = Math.max(commitTs, ...answer.locks.map(({ minCommitTs }) => minCommitTs))
    }
    const txns = [{ startTs: primary.startTs, commitTs }]
    await this.#call((store) => store.resolveLock({ txns, keys: [primary.key] }))
    return commitTs
  }

  // -- Writes

  async #write(txn: Txn, program: Program, mutations: readonly PrewriteMutation[]): Promise<void> {
    const { mode } = program
    const keys = mutations.map(({ key }) => key)
    const [primary = utf8('')] = keys
    const requestOf = (part: readonly PrewriteMutation[]): PrewriteRequest => ({
      mutations: part,
      primary,
      startTs: txn.startTs,
      lockTtl: program.ttlMs,
      minCommitTs: program.canBePushed ? txn.startTs + 1 : undefined,
      ...(mode === 'async' ? { useAsyncCommit: true, secondaries: keys.slice(1) } : {}),
      ...(mode === 'one_pc' ? { tryOnePc: true } : {}),
    })
    const parts = [mutations.slice(0, 1), mutations.slice(1)].filter((part) => part.length > 0)
    if (program.primary === 'last') parts.reverse()
    const requests = (program.primary === 'together' || mode === 'one_pc' ? [mutations] : parts).map(requestOf)

    try {
      if (program.changesItsMind && mode === 'one_pc') await this.#giveUp(txn, mode)
      let commitTs = await this.#prewrite(txn, program, requests)
      if (program.changesItsMind && mode === 'two_pc') await this.#giveUp(txn, mode)
      if (commitTs === undefined) commitTs = await this.#commitPrimary(txn, program, primary)
      this.#acknowledge(txn, commitTs)
      if (mode === 'one_pc') return
      // What follows only tidies up, and cannot fail any more.
      for (const key of mode === 'async' || program.primary === 'last' ? keys : keys.slice(1))
        expect(await this.#commit(program, key, txn.startTs, commitTs)).toBe(commitTs)
    } finally {
      const [late] = requests
      if (program.isLate && late !== undefined) {
        this.#callsLeft = 1
        await this.#call((store) => store.prewrite(late)).catch(expectKvError)
      }
    }
  }

  /** @returns the commit timestamp when that is decided by now. */
  async #prewrite(txn: Txn, program: Program, requests: readonly PrewriteRequest[]): Promise<Timestamp | undefined> {
    let highest: Timestamp | undefined = 0
    for (const request of requests) {
      try {
        const answer = await this.#resolving(txn, () => this.#call((store) => store.prewrite(request)), RETRIES)
        const { minCommitTs, onePcCommitTs } = answer
        if (program.repeats) {
          const again = await this.#call((store) => store.prewrite(request)).catch(expectKvError)
          if (onePcCommitTs !== undefined) expect(again).toEqual(answer)
        }
        if (onePcCommitTs !== undefined) return onePcCommitTs
        highest = minCommitTs === undefined || highest === undefined ? undefined : Math.max(highest, minCommitTs)
      } catch (error) {
        expectKvError(error)
        if (isKvError(error, 'already_exists') && error.fields.key) txn.taken.push(text(error.fields.key))
        return this.#giveUp(txn, program.mode)
      }
    }
    return highest === 0 ? undefined : highest
  }

  async #giveUp(txn: Txn, mode: Mode): Promise<never> {
    const { startTs } = txn
    let keys = [...txn.writes.keys()].map(utf8)
    if (mode !== 'two_pc') {
      // A late prewrite could commit by itself: only a protected record, as cleanup leaves it, is sure to stop it.
      const [key = utf8(''), ...rest] = keys
      await this.#call((store) => store.cleanup({ key, startTs, currentTs: 0 }))
      keys = rest
    }
    if (keys.length > 0) await this.#call((store) => store.rollback({ keys, startTs }))
    txn.outcome = 'rolled_back'
    throw new Aborted()
  }

  async #commitPrimary(txn: Txn, program: Program, primary: Uint8Array): Promise<Timestamp> {
    for (;;) {
      const commitTs = await this.#call((store) => store.tso(1))
      try {
        return await this.#commit(program, primary, txn.startTs, commitTs)
      } catch (error) {
        if (isKvError(error, 'commit_ts_expired')) continue // A reader pushed it.
        if (!isKvError(error, 'txn_lock_not_found')) throw error
        txn.outcome = 'rolled_back' // Somebody took it for dead.
        throw new Aborted()
      }
    }
  }

  async #commit(program: Program, key: Uint8Array, startTs: Timestamp, commitTs: Timestamp): Promise<Timestamp> {
    const request = { keys: [key], startTs, commitTs }
    const answer = await this.#call((store) => store.commit(request))
    if (program.repeats) expect(await this.#call((store) => store.commit(request))).toEqual(answer)
    return answer.commitTs
  }

  #acknowledge(txn: Txn, commitTs: Timestamp): void {
    const { history } = this
    txn.outcome = { commitTs }
    history.acknowledged = Math.max(history.acknowledged, commitTs)
    for (const [key, { op }] of txn.writes)
      if (op !== 'lock') history.acknowledgedOf.set(key, Math.max(history.acknowledgedOf.get(key) ?? 0, commitTs))
  }

  /** Brings every transaction of the history to its end, as garbage collection would. */
  async finish(): Promise<void> {
    this.#callsLeft = Number.POSITIVE_INFINITY
    const [start, end] = [utf8(this.history.prefix), utf8(`${this.history.prefix}~`)]
    for (;;) {
      const { locks } = await this.#call((store) => store.scanLock({ maxTs: TIMESTAMP_MAX, start, end }))
      if (locks.length === 0) return
      for (const lock of locks) await this.#resolve(lock, 0)
    }
  }
}

function locksOf(error: KvError<'key_locked'>): readonly LockInfo[] {
  const each = error.errors?.flatMap((entry) => (isKvError(entry, 'key_locked') ? [entry.fields.lock] : []))
  return error.fields.locks ?? (each ?? [error.fields.lock]).flatMap((lock) => (lock === undefined ? [] : [lock]))
}

function expectKvError(error: unknown): undefined {
  if (!(error instanceof KvError)) throw error
  return undefined
}

// ---- The model

/** Every version of every key, oldest first. */
class Model {
  readonly #versions = new Map<string, { readonly commitTs: Timestamp; readonly value: string | undefined }[]>()

  write(key: string, commitTs: Timestamp, value: string | undefined): void {
    const versions = this.#versions.get(key) ?? []
    versions.push({ commitTs, value })
    versions.sort((a, b) => a.commitTs - b.commitTs)
    this.#versions.set(key, versions)
  }

  at(key: string, ts: Timestamp): { readonly commitTs: Timestamp; readonly value: string | undefined } {
    return this.#versions.get(key)?.findLast(({ commitTs }) => commitTs <= ts) ?? { commitTs: 0, value: undefined }
  }

  /** At `from` or at some time after it. */
  isEverAbsent(key: string, from: Timestamp): boolean {
    if (this.at(key, from).value === undefined) return true
    return (this.#versions.get(key) ?? []).some(({ commitTs, value }) => commitTs > from && value === undefined)
  }
}

/** Checks a finished history. */
async function judge(history: History): Promise<void> {
  const { store, txns } = history
  const committed: { txn: Txn; commitTs: Timestamp }[] = []
  for (const txn of txns) {
    if (txn.primary === undefined) continue
    // The primary says what became of it; whatever the client heard must agree.
    const primary = { primary: utf8(txn.primary), lockTs: txn.startTs, callerStartTs: 0, currentTs: TIMESTAMP_MAX - 1 }
    const status = await store.checkTxnStatus({ ...primary, rollbackIfNotExist: true })
    expect(status.status).not.toBe('locked')
    if (txn.outcome === 'rolled_back') expect(status.status).toBe('rolled_back')
    else if (txn.outcome !== 'unknown')
      expect(status).toMatchObject({ status: 'committed', commitTs: txn.outcome.commitTs })
    if (status.status === 'committed') committed.push({ txn, commitTs: status.commitTs })
  }

  const model = new Model()
  for (const { txn, commitTs } of committed) {
    expect(commitTs).toBeGreaterThan(txn.startTs)
    for (const [key, { op, value }] of txn.writes) if (op !== 'lock') model.write(key, commitTs, value)
  }

  // A snapshot: each read is the model's at the start, whatever became of the reader.
  for (const { startTs, reads, latest, taken } of txns) {
    for (const { key, value } of reads)
      expect({ startTs, key, value }).toEqual({ startTs, key, value: model.at(key, startTs).value })
    for (const { key, value, commitTs, atLeast } of latest) {
      if (commitTs > 0) expect(model.at(key, commitTs)).toEqual({ commitTs, value })
      else expect(model.isEverAbsent(key, atLeast)).toBe(true)
      if (commitTs > 0) expect(commitTs).toBeGreaterThanOrEqual(atLeast)
    }
    for (const key of taken) expect(model.at(key, startTs).value).toBeDefined()
  }

  for (const [i, { txn, commitTs }] of committed.entries()) {
    for (const [key, { op }] of txn.writes)
      if (op === 'insert') expect(model.at(key, txn.startTs).value).toBeUndefined()
    // The first committer wins: nobody wrote a key of this transaction while it ran.
    for (const other of committed.slice(i + 1)) {
      if (txn.startTs >= other.commitTs || other.txn.startTs >= commitTs) continue
      const shared = [...txn.writes.keys()].filter((key) => other.txn.writes.has(key))
      expect({ txn: [txn.startTs, commitTs], other: [other.txn.startTs, other.commitTs], shared }).toMatchObject({
        shared: [],
      })
    }
  }

  // All or nothing, and nothing left over.
  const fates = new Map(committed.map(({ txn, commitTs }) => [txn.startTs, commitTs]))
  for (let n = 0; n < KEYS; n++) {
    const key = history.key(n)
    const info = await store.mvccGetByKey({ key: utf8(key) })
    expect(info.lock).toBeNull()
    const stored = info.writes
      .filter(({ type }) => type !== 'rollback')
      .map(({ type, startTs, commitTs }) => ({ type, startTs, commitTs }))
    const wanted = committed.flatMap(({ txn, commitTs }) => {
      const written = txn.writes.get(key)
      return written === undefined
        ? []
        : [{ type: written.op === 'insert' ? 'put' : written.op, startTs: txn.startTs, commitTs }]
    })
    expect(stored).toEqual(wanted.sort((a, b) => b.commitTs - a.commitTs))
    for (const { startTs, value } of info.values) expect(fates.has(startTs) && text(value).endsWith(LONG)).toBe(true)
  }

  // The final state, by every kind of read, of now and of each moment before.
  const all = Array.from({ length: KEYS }, (_, n) => history.key(n))
  const [start, end] = [utf8(history.prefix), utf8(`${history.prefix}~`)]
  const now = await store.tso(1)
  for (const ts of [now, ...committed.flatMap(({ commitTs }) => [commitTs - 1, commitTs])]) {
    const wanted = all.flatMap((key) => {
      const { commitTs, value } = model.at(key, ts)
      return value === undefined ? [] : [{ key: utf8(key), value: utf8(value), commitTs }]
    })
    expect((await store.batchGet({ keys: all.map(utf8), ts })).pairs).toEqual(wanted)
    expect((await store.scan({ start, end, ts, limit: 100 })).pairs).toEqual(wanted)
    expect((await store.scan({ start, end, ts, limit: 100, reverse: true })).pairs).toEqual([...wanted].reverse())
  }
  for (const key of all) {
    const { commitTs, value } = model.at(key, now)
    const wanted = value === undefined ? { found: false } : { found: true, value: utf8(value), commitTs }
    expect(await store.get({ key: utf8(key) })).toMatchObject(wanted)
  }
}

// ---- The test

/** A store, and what it lets a test hold back. */
interface Stage {
  readonly store: Store
  readonly gate: WriteGate
  /** Fulfilled when nothing goes on any more that does not wait for the test. */
  readonly quiet: () => Promise<void>
  readonly close: () => Promise<void>
}

async function levelDbStage(clock: TestClock): Promise<Stage> {
  const tapped = new TappedEngine()
  const directory = await makeDirectory()
  const store = await openLevelDbStore({ directory, durability: 'async', now: clock.now, openEngine: tapped.open })
  const gate = new WriteGate(tapped)
  gate.open()
  const close = async (): Promise<void> => {
    gate.open()
    await store.close()
    await rm(directory, { recursive: true, force: true })
  }
  return { store, gate, quiet: () => tapped.quiet(), close }
}

describe('snapshot isolation', () => {
  const clock = new TestClock()
  let stage: Stage
  let runs = 0

  beforeAll(async () => {
    stage = await levelDbStage(clock)
  })
  afterAll(() => stage.close())

  /** Lets everybody run to the end, one step a choice; after the last choice in turn. */
  async function play(history: History, running: Promise<unknown>[], steps: readonly number[]): Promise<void> {
    let left = running.length
    let failure: { readonly error: unknown } | undefined
    for (const each of running)
      each.then(
        () => left--,
        (error: unknown) => {
          failure ??= { error }
          left--
        },
      )
    await stage.quiet()
    for (let step = 0; left > 0 && failure === undefined; step++) {
      const choice = steps[step] ?? step * 7
      if (choice % 5 === 0) clock.ms += choice % 50 === 0 ? 20 : 1
      // Every third step two things begin at once, so that calls also overlap while they read.
      for (let pick = choice, begun = choice % 3 === 0 ? 0 : 1; begun < 2; begun++, pick = Math.floor(pick / 7)) {
        const { ready } = history
        const options = ready.length + (stage.gate.held > 0 ? 1 : 0)
        if (options === 0 && begun === 1 && choice % 3 === 0) break
        expect(options, 'a call waits for nobody').toBeGreaterThan(0)
        const picked = pick % options
        if (picked < ready.length) history.pick(picked)
        else stage.gate.release()
      }
      await stage.quiet()
      expect(step, 'the history ends').toBeLessThan(5000)
    }
    if (failure !== undefined) throw failure.error
  }

  test('property: random concurrent histories, with clients that stop at any point', async () => {
    await fc.assert(
      fc.asyncProperty(clients, choices, async (programs, steps) => {
        const history = new History(stage.store, `run${String(runs++).padStart(6, '0')}/`)
        stage.gate.shut()
        try {
          const coordinators = programs.map((_, client) => new Coordinator(history, client))
          await play(
            history,
            coordinators.map((coordinator, i) => coordinator.run(programs[i] ?? [])),
            steps,
          )
          clock.ms += 1000
          await play(history, [new Coordinator(history, 0).finish()], [])
        } finally {
          stage.gate.open()
          await stage.quiet()
        }
        await judge(history)
      }),
      { numRuns: RUNS },
    )
  })
})
