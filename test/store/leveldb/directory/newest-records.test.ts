import { copyFile, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { LockInfo } from '../../../../src/errors/lock-info.js'
import { acquirePessimisticLock } from '../../../../src/percolator/actions/acquire-pessimistic-lock.js'
import { blocksRead } from '../../../../src/percolator/actions/get.js'
import { prewrite } from '../../../../src/percolator/actions/prewrite.js'
import type { Pair, PrewriteMutation, PrewriteRequest } from '../../../../src/percolator/api.js'
import { decodeKey, decodeKeyTs } from '../../../../src/percolator/codec/key.js'
import { decodeWrite } from '../../../../src/percolator/codec/write.js'
import type { Lock } from '../../../../src/percolator/lock.js'
import { sameKey } from '../../../../src/percolator/row.js'
import { isData, type WriteRecord } from '../../../../src/percolator/write.js'
import { FORMAT_VERSION, readFormat } from '../../../../src/store/leveldb/directory/data-directory.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { type Engine, type EngineRange, pagesOf } from '../../../../src/store/leveldb/engine/engine.js'
import {
  AHEAD,
  CF_DEFAULT,
  CF_NEWEST,
  CF_WRITE,
  type ColumnFamily,
  keyRange,
} from '../../../../src/store/leveldb/records/keyspace.js'
import type { CompleteStore, Store } from '../../../../src/store/store.js'
import { TIMESTAMP_MAX, type Timestamp, timestampFromMs } from '../../../../src/timestamp.js'
import {
  atOnce,
  codeOf,
  deferred,
  del,
  EngineFailure,
  prewriteOf,
  put,
  read,
  START_MS,
  TappedEngine,
  TestClock,
  testStores,
  text,
  utf8,
  write,
} from '../../support.js'
import { findingsIn } from '../repair/findings.js'
import { makeOlder } from './old-format.js'

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 4)

const stores = testStores()
const LONG = 'x'.repeat(300)

const entriesOf = (engine: Engine, cf: ColumnFamily): Promise<[Buffer, Buffer][]> => entriesIn(engine, keyRange(cf))

async function entriesIn(engine: Engine, range: EngineRange): Promise<[Buffer, Buffer][]> {
  const entries: [Buffer, Buffer][] = []
  for await (const page of pagesOf(engine, range, 1000)) entries.push(...page)
  return entries
}

/** CF_WRITE, and what CF_NEWEST has to hold because of it, said by the documented bytes. */
class Truth {
  readonly histories = new Map<string, WriteRecord[]>()
  readonly newest = new Map<string, string>()
  readonly values = new Map<string, string>()

  static async of(engine: Engine): Promise<Truth> {
    const truth = new Truth()
    for (const [at, bytes] of await entriesOf(engine, CF_WRITE)) {
      const key = text(decodeKey(at))
      const record = decodeWrite(bytes, decodeKeyTs(at))
      const history = truth.histories.get(key) ?? []
      truth.histories.set(key, [...history, record])
      if (truth.newest.has(key) || !isData(record)) continue
      const commitTs = Buffer.alloc(8)
      commitTs.writeBigUInt64BE(BigInt(record.commitTs))
      truth.newest.set(key, Buffer.concat([commitTs, bytes]).toString('hex'))
    }
    for (const [at, value] of await entriesOf(engine, CF_DEFAULT))
      truth.values.set(`${text(decodeKey(at))} at ${decodeKeyTs(at)}`, text(value))
    return truth
  }

  /** What a read at `ts` has to say. */
  get(key: string, ts: Timestamp): { value: string; commitTs: Timestamp } | undefined {
    const seen = this.histories.get(key)?.find((record) => record.commitTs <= ts && isData(record))
    if (seen?.type !== 'put') return undefined
    const { shortValue, commitTs, startTs } = seen
    const value = shortValue === undefined ? this.values.get(`${key} at ${startTs}`) : text(shortValue)
    return { value: value as string, commitTs }
  }

  pairs(keys: Iterable<string>, ts: Timestamp): string[] {
    const pairs: string[] = []
    for (const key of keys) {
      const seen = this.get(key, ts)
      if (seen !== undefined) pairs.push(`${key}=${seen.value}@${seen.commitTs}`)
    }
    return pairs
  }

  scan(ts: Timestamp, reverse: boolean): string[] {
    const keys = [...this.histories.keys()].sort()
    return this.pairs(reverse ? keys.reverse() : keys, ts)
  }
}

async function expectNewest(engine: Engine): Promise<Truth> {
  const truth = await Truth.of(engine)
  const stored = (await entriesOf(engine, CF_NEWEST)).map(([at, bytes]) => [text(decodeKey(at)), bytes.toString('hex')])
  expect(Object.fromEntries(stored)).toEqual(Object.fromEntries(truth.newest))
  return truth
}

/** What the disk has when the process dies now. Again where LevelDB, which tidies up in the background, came in between. */
async function crashed(directory: string): Promise<string> {
  for (;;) {
    const copy = await stores.directory()
    const names = await readdir(directory)
    try {
      for (const name of names) await copyFile(join(directory, name), join(copy, name))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') continue
      throw error
    }
    if ((await readdir(directory)).join() === names.join()) return copy
  }
}

const shown = ({ key, value, commitTs }: Pair): string => `${text(key)}=${value && text(value)}@${commitTs}`

// ---- Random histories

const KEYS = ['a', 'b', 'c'] as const
const ALL_KEYS = KEYS.map(utf8)
type MutationOp = PrewriteMutation['op']
type Key = (typeof KEYS)[number]
/** Timestamps are counted in small numbers; `tsOf` makes them real. */
type N = number

interface Prewrite {
  readonly do: 'prewrite'
  readonly start: N
  readonly mutations: readonly (readonly [Key, MutationOp, isLong: boolean])[]
  readonly kind: '1pc' | '2pc' | 'async'
  readonly skips: boolean
  readonly asserts: boolean
  readonly minCommit: N | 0
  /** 0: optimistic. */
  readonly forUpdate: N | 0
  readonly actions: readonly ('skip' | 'do' | 'constraint')[]
}
type Step =
  | Prewrite
  | { readonly do: 'commit'; readonly start: N; readonly commit: N; readonly keys: readonly Key[] }
  | { readonly do: 'commit what is locked'; readonly pick: number; readonly after: N }
  | { readonly do: 'rollback'; readonly start: N; readonly keys: readonly Key[] }
  | { readonly do: 'cleanup' | 'check_txn_status'; readonly start: N; readonly key: Key }
  | { readonly do: 'check_secondary_locks'; readonly start: N; readonly keys: readonly Key[] }
  | { readonly do: 'resolve_lock'; readonly start: N; readonly commit: N | 0 }
  | { readonly do: 'lock'; readonly start: N; readonly forUpdate: N; readonly key: Key; readonly isForced: boolean }
  | { readonly do: 'collect'; readonly safePoint: N }
  | { readonly do: 'delete_range'; readonly key: Key }
  | { readonly do: 'read'; readonly key: Key; readonly ts: N | undefined }
type Turn =
  | { readonly steps: readonly Step[]; readonly breaks?: 'fails' | 'lands but reports failure' | undefined }
  | { readonly restart: 'stop' | 'crash' }

const START_MAX = 24
const n = fc.integer({ min: 1, max: START_MAX })
const someKeys = fc.subarray([...KEYS], { minLength: 1 })
/** The usual one is above everything so far; any other is a client's own idea. */
const mutationsArb = fc
  .tuple(
    someKeys,
    fc.array(fc.tuple(fc.constantFrom<MutationOp>('put', 'put', 'delete', 'lock', 'insert'), fc.boolean())),
  )
  .map(([keys, ops]) => keys.map((key, i) => [key, ...(ops[i] ?? (['put', false] as const))] as const))
const prewriteArb: fc.Arbitrary<Prewrite> = fc.record({
  do: fc.constant('prewrite' as const),
  start: n,
  mutations: mutationsArb,
  kind: fc.constantFrom('1pc', '1pc', '2pc', '2pc', 'async'),
  skips: fc.boolean(),
  asserts: fc.constantFrom(false, false, true),
  minCommit: fc.constantFrom(0, 0, 5, 15, START_MAX + 5),
  forUpdate: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: n }),
  actions: fc.array(fc.constantFrom('skip', 'do', 'constraint'), { minLength: 4, maxLength: 4 }),
})
const stepArb: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: prewriteArb },
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant('commit what is locked' as const), pick: fc.nat(9), after: n }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('commit' as const), start: n, commit: n, keys: someKeys }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('rollback' as const), start: n, keys: someKeys }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom('cleanup' as const, 'check_txn_status' as const),
      start: n,
      key: fc.constantFrom(...KEYS),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('check_secondary_locks' as const), start: n, keys: someKeys }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('resolve_lock' as const), start: n, commit: fc.oneof(n, fc.constant(0)) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('lock' as const),
      start: n,
      forUpdate: n,
      key: fc.constantFrom(...KEYS),
      isForced: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('collect' as const), safePoint: fc.integer({ min: 1, max: 12 }) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('delete_range' as const), key: fc.constantFrom(...KEYS) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('read' as const),
      key: fc.constantFrom(...KEYS),
      ts: fc.oneof(n, fc.constant(undefined)),
    }),
  },
)
const turnArb: fc.Arbitrary<Turn> = fc.oneof(
  { weight: 12, arbitrary: stepArb.map((step) => ({ steps: [step] })) },
  { weight: 3, arbitrary: fc.array(stepArb, { minLength: 2, maxLength: 3 }).map((steps) => ({ steps })) },
  {
    weight: 1,
    arbitrary: fc
      .tuple(stepArb, fc.constantFrom('fails' as const, 'lands but reports failure' as const))
      .map(([step, breaks]) => ({ steps: [step], breaks })),
  },
  { weight: 1, arbitrary: fc.record({ restart: fc.constantFrom('stop', 'crash') }) },
)

/** Small: far below the oracle's mark. Around: some below the clock, some above it, some above the mark. */
const SCALES = {
  small: (count: N): Timestamp => count,
  'around now': (count: N): Timestamp => timestampFromMs(START_MS - 2000 + 250 * count),
}

class World {
  readonly #tsOf: (count: N) => Timestamp
  readonly #cacheBytesMax: number
  readonly #clock = new TestClock()
  #tapped = new TappedEngine()
  #directory = ''
  #store: CompleteStore | undefined
  #values = 0

  constructor(scale: keyof typeof SCALES, cacheBytesMax: number) {
    this.#tsOf = SCALES[scale]
    this.#cacheBytesMax = cacheBytesMax
  }

  get store(): CompleteStore {
    return this.#store as CompleteStore
  }
  get #engine(): Engine {
    return this.#tapped.engine
  }

  async open(directory: string): Promise<void> {
    this.#directory = directory
    this.#tapped = new TappedEngine()
    this.#store = await stores.open({
      directory,
      openEngine: this.#tapped.open,
      now: this.#clock.now,
      cacheBytesMax: this.#cacheBytesMax,
    })
  }

  async run(turn: Turn): Promise<void> {
    if ('restart' in turn) await this.#restart(turn.restart)
    else if (turn.breaks !== undefined) await this.#runBroken(turn.steps[0] as Step, turn.breaks)
    else if (turn.steps.length === 1) await this.#runAlone(turn.steps[0] as Step)
    else await Promise.all(turn.steps.map((step) => codeOf(this.#call(step))))
    await this.#expectTruth()
  }

  async #restart(how: 'stop' | 'crash'): Promise<void> {
    const before = this.store
    if (how === 'stop') {
      await before.close()
      return this.open(this.#directory)
    }
    await this.#tapped.quiet()
    const copy = await crashed(this.#directory)
    await before.close()
    await this.open(copy)
  }

  async #runBroken(step: Step, breaks: 'fails' | 'lands but reports failure'): Promise<void> {
    this.#tapped.onWrite = async (_, land) => {
      this.#tapped.onWrite = (_next, landNext) => landNext()
      if (breaks !== 'fails') await land()
      throw new EngineFailure('disk full')
    }
    await codeOf(this.#call(step))
    await this.#tapped.quiet()
    this.#tapped.onWrite = (_, land) => land()
    expect(this.store.upkeep.probe()).toBe(true)
  }

  /** Its outcome is what the pure action says of whole histories. */
  async #runAlone(step: Step): Promise<void> {
    const want = await this.#codeWanted(step)
    const got = await codeOf(this.#call(step))
    if (want !== undefined) expect(got).toBe(want)
  }

  async #codeWanted(step: Step): Promise<string | undefined> {
    if (step.do !== 'prewrite' && step.do !== 'lock') return undefined
    if (this.#tsOf(step.start) < this.store.safePoint) return 'ts_below_safe_point'
    const { histories } = await Truth.of(this.#engine)
    const locks = await this.#locks()
    const rowOf = (key: Uint8Array) => {
      const lock = locks.find((info) => sameKey(info.key, key))
      return { key, lock: lock && lockOf(lock), writes: histories.get(text(key)) ?? [] }
    }
    const clockTs = this.store.time.clock()
    const outcome =
      step.do === 'prewrite'
        ? prewrite(
            step.mutations.map(([key]) => rowOf(utf8(key))),
            this.#prewriteRequest(step, 0),
            { maxTs: 0, shortValueBytesMax: 255, clockTs },
          )
        : acquirePessimisticLock(rowOf(utf8(step.key)), this.#lockRequest(step), clockTs)
    return outcome.ok ? 'none' : outcome.error.code
  }

  async #locks(): Promise<readonly LockInfo[]> {
    return (await this.store.scanLock({ maxTs: TIMESTAMP_MAX })).locks
  }

  #prewriteRequest(step: Prewrite, serial: number): PrewriteRequest {
    // Unchecked, a Lock record may take the place of a Put at the same timestamp: see the case below.
    const isChecked = step.forUpdate === 0 && !step.skips
    const mutations = step.mutations.map(([key, asked, isLong]): PrewriteMutation => {
      const op = asked === 'lock' && !isChecked ? 'delete' : asked
      return {
        op,
        key: utf8(key),
        ...(op === 'put' || op === 'insert' ? { value: utf8(`${isLong ? LONG : ''}${serial}`) } : {}),
        ...(step.asserts ? { assertion: 'exist' } : {}),
      }
    })
    return prewriteOf(this.#tsOf(step.start), mutations, {
      tryOnePc: step.kind === '1pc',
      useAsyncCommit: step.kind === 'async',
      ...(step.kind === 'async' ? { secondaries: mutations.slice(1).map(({ key }) => key) } : {}),
      ...(step.minCommit === 0 ? {} : { minCommitTs: this.#tsOf(step.minCommit) }),
      ...(step.forUpdate === 0
        ? { skipConstraintCheck: step.skips }
        : {
            forUpdateTs: this.#tsOf(Math.max(step.start, step.forUpdate)),
            pessimisticActions: step.actions.slice(0, mutations.length),
          }),
    })
  }

  #lockRequest(step: Extract<Step, { do: 'lock' }>) {
    const { start, forUpdate, key, isForced } = step
    return {
      keys: [utf8(key)],
      primary: utf8(key),
      startTs: this.#tsOf(start),
      forUpdateTs: this.#tsOf(Math.max(start, forUpdate)),
      lockTtl: 3000,
      waitTimeout: -1,
      ...(isForced ? { wakeUpMode: 'force_lock' as const } : { returnValues: true }),
    }
  }

  async #call(step: Step): Promise<unknown> {
    const { store } = this
    const tsOf = this.#tsOf
    switch (step.do) {
      case 'prewrite':
        return store.prewrite(this.#prewriteRequest(step, ++this.#values))
      case 'commit':
        return store.commit({
          keys: step.keys.map(utf8),
          startTs: tsOf(step.start),
          commitTs: tsOf(step.start + step.commit),
        })
      case 'commit what is locked': {
        const locks = (await this.#locks()).filter(({ type }) => type !== 'pessimistic')
        const picked = locks[step.pick % locks.length]
        if (picked === undefined) return undefined
        const keys = locks.filter(({ startTs }) => startTs === picked.startTs).map(({ key }) => key)
        const least = Math.max(picked.startTs + 1, ...locks.map(({ minCommitTs }) => minCommitTs))
        return store.commit({ keys, startTs: picked.startTs, commitTs: Math.max(least, tsOf(step.after)) })
      }
      case 'rollback':
        return store.rollback({ keys: step.keys.map(utf8), startTs: tsOf(step.start) })
      case 'cleanup':
        return store.cleanup({ key: utf8(step.key), startTs: tsOf(step.start), currentTs: 0 })
      case 'check_txn_status':
        return store.checkTxnStatus({
          primary: utf8(step.key),
          lockTs: tsOf(step.start),
          callerStartTs: tsOf(step.start + 1),
          currentTs: TIMESTAMP_MAX,
          rollbackIfNotExist: true,
        })
      case 'check_secondary_locks':
        return store.checkSecondaryLocks({ keys: step.keys.map(utf8), startTs: tsOf(step.start) })
      case 'resolve_lock': {
        const startTs = tsOf(step.start)
        const commitTs = step.commit === 0 ? 0 : tsOf(step.start + step.commit)
        return store.resolveLock({ txns: [{ startTs, commitTs }] })
      }
      case 'lock':
        return store.acquirePessimisticLock(this.#lockRequest(step))
      case 'collect': {
        const safePoint = tsOf(step.safePoint)
        await store.upkeep.raiseSafePoint(safePoint)
        for (const { key, startTs } of await this.#locks())
          if (startTs <= safePoint) await store.rollback({ keys: [key], startTs })
        return store.upkeep.collect(safePoint)
      }
      case 'delete_range':
        return store.deleteRange({ start: utf8(step.key), end: utf8(`${step.key}\0`) })
      case 'read':
        return store.get({ key: utf8(step.key), ts: step.ts === undefined ? undefined : tsOf(step.ts) })
    }
  }

  /** CF_NEWEST is what CF_WRITE says, and so are all reads. */
  async #expectTruth(): Promise<void> {
    const truth = await expectNewest(this.#engine)
    const locks = await this.#locks()
    const { store } = this
    const isBlocked = (key: string, ts: Timestamp): boolean =>
      locks.some((lock) => text(lock.key) === key && blocksRead(lockOf(lock), lock.key, ts))
    for (const key of KEYS) {
      const known = atOnce(store.get({ key: utf8(key) }))
      if (known === undefined) continue
      const { value, commitTs } = truth.get(key, TIMESTAMP_MAX) ?? {}
      expect(known.found ? [text(known.value), known.commitTs] : []).toEqual(
        value === undefined ? [] : [value, commitTs],
      )
    }
    for (const ts of [undefined, ...[3, 8, 14, 22].map(this.#tsOf)]) {
      if (ts !== undefined && ts < store.safePoint) {
        expect(await codeOf(store.get({ key: utf8('a'), ts }))).toBe('ts_below_safe_point')
        continue
      }
      const at = ts ?? TIMESTAMP_MAX
      const open = KEYS.filter((key) => !isBlocked(key, at))
      const { pairs } = await store.batchGet({ keys: open.map(utf8), ts })
      expect(pairs.map(shown)).toEqual(truth.pairs(open, at))
      if (open.length < KEYS.length) expect(await codeOf(store.batchGet({ keys: ALL_KEYS, ts }))).toBe('key_locked')
    }
  }

  /** Every way to read, at every timestamp, once no lock is in the way. */
  async expectAllReads(): Promise<void> {
    for (const { key, startTs } of await this.#locks()) await this.store.rollback({ keys: [key], startTs })
    const truth = await expectNewest(this.#engine)
    // Unchecked prewrites may bring two transactions to one commit_ts, and leave the long value of the first behind; and one
    // may commit after it was rolled back.
    const isOfUnchecked = (finding: string): boolean =>
      /belongs to no record and no lock$|stands beside a commit of its transaction/.test(finding)
    expect((await findingsIn(this.#tapped.raw)).filter((finding) => !isOfUnchecked(finding))).toEqual([])
    const { store } = this
    const limits = [1, 2, 3, 100]
    for (let count = 1; count <= 2 * START_MAX; count += 2) {
      const ts = this.#tsOf(count)
      if (ts < store.safePoint) continue
      for (const [i, key] of KEYS.entries()) {
        const answer = await store.get({ key: utf8(key), ts })
        expect(answer.found ? [shown({ key: utf8(key), ...answer })] : []).toEqual(truth.pairs([key], ts))
        const reverse = (i + (count >> 1)) % 2 === 0
        const limit = limits[(i + (count >> 2)) % limits.length] as number
        const keyOnly = (i + (count >> 3)) % 3 === 0
        const { pairs } = await store.scan({ ts, limit, reverse, keyOnly })
        const want = truth.scan(ts, reverse).slice(0, limit)
        const keyAndTs = (pair: string): string => pair.replace(/=.*@/, '=undefined@')
        expect(pairs.map(shown)).toEqual(keyOnly ? want.map(keyAndTs) : want)
      }
    }
    for (const key of KEYS) {
      for (const again of [false, true]) {
        const answer = await store.get({ key: utf8(key) })
        const got = answer.found ? [shown({ key: utf8(key), ...answer })] : []
        expect([again, got]).toEqual([again, truth.pairs([key], TIMESTAMP_MAX)])
      }
    }
  }
}

function lockOf(info: LockInfo): Lock {
  const { expireTs = 0, leaseFence = 0 } = info
  return { ...info, ttlMs: info.ttl, shortValue: undefined, rollbackTs: [], expireTs, leaseFence }
}

test.each(Object.keys(SCALES) as (keyof typeof SCALES)[])(
  'property, timestamps %s: CF_NEWEST and every read are what CF_WRITE says, and conflict checks too',
  async (scale) => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(turnArb, { minLength: 8, maxLength: 40, size: 'max' }),
        fc.constantFrom(0, 700, 1_000_000),
        async (turns, cacheBytesMax) => {
          const world = new World(scale, cacheBytesMax)
          await world.open(await stores.directory())
          try {
            for (const turn of turns) await world.run(turn)
            await world.expectAllReads()
          } finally {
            await world.store.close()
          }
        },
      ),
      { numRuns: RUNS, interruptAfterTimeLimit: 30_000 }, // Shrinking takes long.
    )
  },
)

// ---- Single cases

describe('histories with more than values in them', () => {
  test('older versions are found below Lock and Rollback records, however many', async () => {
    const store = await stores.open()
    await write(store, 1, 2, [put('a', 'old'), put('b', 'old')])
    for (let ts = 10; ts < 300; ts += 2) await write(store, ts, ts + 1, [{ op: 'lock', key: utf8('a') }])
    await store.cleanup({ key: utf8('b'), startTs: 10, currentTs: 0 })
    await write(store, 400, 401, [put('a', 'new'), del('b')])
    for (const ts of [9, 11, 200, 400]) {
      expect([await read(store, 'a', ts), await read(store, 'b', ts)]).toEqual(['old', 'old'])
      expect((await store.scan({ ts, limit: 10 })).pairs.map(shown)).toEqual(['a=old@2', 'b=old@2'])
    }
    expect((await store.scan({ ts: 401, limit: 10 })).pairs.map(shown)).toEqual(['a=new@401'])
  })

  test('a Lock record at the commit_ts of a Put', async () => {
    const tapped = new TappedEngine()
    const store = await stores.open({ openEngine: tapped.open })
    await write(store, 5, 10, [put('a', 'ten')])
    await write(store, 15, 20, [put('a', 'twenty')])
    await store.prewrite(prewriteOf(16, [{ op: 'lock', key: utf8('a') }], { skipConstraintCheck: true }))
    await store.commit({ keys: [utf8('a')], startTs: 16, commitTs: 20 })
    await expectNewest(tapped.engine)
    const before = await read(store, 'a')
    await store.upkeep.collect(30)
    expect(await read(store, 'a')).toBe(before)
    await expectNewest(tapped.engine)
  })

  test('Rollback records collapse, whatever memory knows of the key', async () => {
    const store = await stores.open()
    for (const startTs of [10, 20, 30]) await store.rollback({ keys: [utf8('a')], startTs })
    expect((await store.mvccGetByKey({ key: utf8('a') })).writes.map(({ commitTs }) => commitTs)).toEqual([30])
  })
})

describe('scans over many keys', () => {
  test('property: scans of the past, over histories long and short, side by side', async () => {
    const ROUNDS = 25
    const opsOf: Record<string, (round: number) => MutationOp | undefined> = {
      'all the time': () => 'put',
      'seldom, late': (round) => (round % 12 === 11 ? 'put' : undefined),
      'once, early': (round) => (round === 2 ? 'put' : undefined),
      'on and off': (round) => (['put', 'delete', undefined] as const)[round % 3],
      'locked and locked': (round) => (round === 3 || round === ROUNDS - 1 ? 'put' : 'lock'),
      'deleted and locked': (round) => (round === 3 ? 'put' : round === 9 ? 'delete' : 'lock'),
    }
    const styles = fc.array(fc.constantFrom(...Object.keys(opsOf)), { minLength: 40, maxLength: 60, size: 'max' })
    await fc.assert(
      fc.asyncProperty(styles, async (styleOf) => {
        const tapped = new TappedEngine()
        const store = await stores.open({ openEngine: tapped.open })
        for (let round = 1; round < ROUNDS; round++) {
          const mutations = styleOf.flatMap((style, i): PrewriteMutation[] => {
            const op = opsOf[style]?.(round)
            const key = `key${String(i).padStart(2, '0')}`
            return op === undefined ? [] : [op === 'put' ? put(key, `${round}`) : { op, key: utf8(key) }]
          })
          if (mutations.length > 0) await store.prewrite(prewriteOf(10 * round, mutations, { tryOnePc: true }))
        }
        const truth = await expectNewest(tapped.engine)
        for (let ts = 5; ts < 10 * ROUNDS; ts += 10) {
          const reverse = ts % 20 === 5
          const { pairs } = await store.scan({ ts, limit: 100, reverse })
          expect(pairs.map(shown)).toEqual(truth.scan(ts, reverse))
        }
        await store.close()
      }),
      { numRuns: RUNS },
    )
  })

  test('gc in steps comes to every key', async () => {
    const tapped = new TappedEngine()
    const store = await stores.open({ openEngine: tapped.open })
    const keys = Array.from({ length: 800 }, (_, i) => `key${i}`)
    for (const ts of [10, 20, 30])
      await store.prewrite(
        prewriteOf(
          ts,
          keys.map((key) => put(key)),
          { tryOnePc: true },
        ),
      )
    await store.prewrite(prewriteOf(40, keys.map(del), { tryOnePc: true }))
    expect(await store.upkeep.collect(35)).toBe(2 * keys.length)
    await expectNewest(tapped.engine)
    expect(await store.upkeep.collect(50)).toBe(2 * keys.length)
    expect((await expectNewest(tapped.engine)).histories.size).toBe(0)
  })

  test('pages grow over deleted and younger keys and lose none', async () => {
    const store = await stores.open()
    const keys = Array.from({ length: 1100 }, (_, i) => `key${String(i).padStart(4, '0')}`)
    await write(
      store,
      1,
      2,
      keys.map((key) => put(key, 'old')),
    )
    const isDeleted = (i: number): boolean => i % 100 !== 99
    const isYounger = (i: number): boolean => i % 7 === 0
    await write(store, 3, 4, keys.filter((_, i) => isDeleted(i)).map(del))
    await write(
      store,
      5,
      6,
      keys.filter((_, i) => isYounger(i)).map((key) => put(key, LONG)),
    )
    const seenAt: Record<number, (i: number) => boolean> = {
      1: () => false,
      2: () => true,
      4: (i) => !isDeleted(i),
      6: (i) => !isDeleted(i) || isYounger(i),
    }
    for (const [ts, isSeen] of Object.entries(seenAt)) {
      for (const reverse of [false, true]) {
        const want = keys.filter((_, i) => isSeen(i))
        if (reverse) want.reverse()
        for (const limit of [1, 3, 511, 2000]) {
          const { pairs } = await store.scan({ ts: Number(ts), limit, reverse, keyOnly: true })
          expect(pairs.map(({ key }) => text(key))).toEqual(want.slice(0, limit))
        }
      }
    }
  })
})

/** Takes from a closed directory what format 1 did not have. */
async function makeFormat1(directory: string, keep: (entry: number) => boolean = () => false): Promise<void> {
  let entry = 0
  await makeOlder(directory, 1, (key) => key[0] === AHEAD || (key[0] === CF_NEWEST && !keep(entry++)))
}

describe('a directory of format 1', () => {
  async function filled(directory: string, keys = 0): Promise<void> {
    const store = await stores.open({ directory })
    await write(store, 1, 2, [put('short', 'old'), put('gone'), put('long', 'old'), put('locked', 'old')])
    await write(store, 3, 4, [put('short', 'new'), del('gone'), put('long', LONG)])
    await store.rollback({ keys: ['short', 'never'].map(utf8), startTs: 9 })
    await store.prewrite(prewriteOf(5, [put('locked', 'new')]))
    // Twice, so that the history of one spans two pages of the conversion.
    for (const ts of keys > 0 ? [6, 8] : []) {
      const many = Array.from({ length: keys }, (_, i) => put(`many${i}`, String(ts)))
      await store.prewrite(prewriteOf(ts, many, { tryOnePc: true }))
    }
    await store.close()
  }

  async function expectConverted(directory: string): Promise<void> {
    const tapped = new TappedEngine()
    const store = await stores.open({ directory, openEngine: tapped.open })
    await expectNewest(tapped.engine)
    expect(await readFormat(tapped.raw)).toBe(FORMAT_VERSION)
    const { pairs } = await store.scan({ ts: 4, limit: 10 })
    expect(pairs.map(shown)).toEqual([`locked=old@2`, `long=${LONG}@4`, `short=new@4`])
    expect(await read(store, 'short', 3)).toBe('old')
    expect(await codeOf(store.prewrite(prewriteOf(2, [put('short')])))).toBe('write_conflict')
    await store.commit({ keys: [utf8('locked')], startTs: 5, commitTs: 8 })
    expect(await read(store, 'locked')).toBe('new')
    await expectNewest(tapped.engine)
    await store.close()
  }

  test('is filled in when it is opened', async () => {
    const directory = await stores.directory()
    await filled(directory)
    await makeFormat1(directory)
    await expectConverted(directory)
    const tapped = new TappedEngine()
    await stores.open({ directory, openEngine: tapped.open })
    expect(tapped.writes.flatMap(({ ops }) => ops).filter(({ key }) => key[0] === CF_NEWEST)).toEqual([])
  })

  test('of which a part was filled in is filled in all the same', async () => {
    const directory = await stores.directory()
    await filled(directory)
    await makeFormat1(directory, (entry) => entry % 2 === 0)
    await expectConverted(directory)
  })

  test.each([1, 2, 3, 4, 5, 6, 7, 8])(
    'whose conversion ended at write %i is converted at the next start',
    async (last) => {
      const directory = await stores.directory()
      await filled(directory, 1000)
      await makeFormat1(directory)
      const tapped = new TappedEngine()
      tapped.onWrite = async (_, land) => {
        if (tapped.writes.length === last) throw new EngineFailure('disk full')
        await land()
      }
      await expect(stores.open({ directory, openEngine: tapped.open })).rejects.toThrow('disk full')
      const engine = await openLevelDb(directory)
      expect(await readFormat(engine)).toBeLessThan(FORMAT_VERSION)
      await engine.close()
      await expectConverted(directory)
    },
  )

  test('with a commit of the future: its conflicts are found', async () => {
    const directory = await stores.directory()
    const clock = new TestClock()
    const first = await stores.open({ directory, now: clock.now })
    await write(first, await first.tso(1), clock.ts() + timestampFromMs(60_000), [put('k', 'new')])
    await first.close()
    await makeFormat1(directory)
    const store = await stores.open({ directory, now: clock.now })
    expect(await codeOf(store.prewrite(prewriteOf(await store.tso(1), [put('k', 'lost')])))).toBe('write_conflict')
  })
})

describe('records above the oracle’s mark', () => {
  const clock = new TestClock()
  const FUTURE = clock.ts() + timestampFromMs(60_000)

  async function restarted(directory: string, store: Store, how: 'stop' | 'crash'): Promise<Store> {
    const from = how === 'crash' ? await crashed(directory) : directory
    await store.close()
    return stores.open({ directory: from, now: clock.now })
  }

  const conflicts = async (store: Store): Promise<string> =>
    codeOf(store.prewrite(prewriteOf(await store.tso(1), [put('k', 'lost')])))

  const WAYS: readonly (readonly [string, (store: Store) => Promise<unknown>])[] = [
    ['a commit', async (store) => write(store, await store.tso(1), FUTURE, [put('k')])],
    [
      'a 1PC with a min_commit_ts',
      async (store) =>
        store.prewrite(prewriteOf(await store.tso(1), [put('k')], { tryOnePc: true, minCommitTs: FUTURE })),
    ],
    [
      'resolve_lock',
      async (store) => {
        const startTs = await store.tso(1)
        await store.prewrite(prewriteOf(startTs, [put('k')]))
        await store.resolveLock({ txns: [{ startTs, commitTs: FUTURE }] })
      },
    ],
    [
      'two commits, the higher first',
      async (store) => {
        const startTs = await store.tso(1)
        await write(store, startTs, FUTURE + 1, [put('other')])
        await write(store, startTs, FUTURE, [put('k')])
      },
    ],
    [
      'two commits, the lower first',
      async (store) => {
        const startTs = await store.tso(1)
        await write(store, startTs, FUTURE - 1, [put('other')])
        await write(store, startTs, FUTURE, [put('k')])
      },
    ],
  ]
  test.each(WAYS)('%s: a stop or a crash forgets no conflict', async (_, act) => {
    for (const how of ['stop', 'crash'] as const) {
      const directory = await stores.directory()
      const store = await stores.open({ directory, now: clock.now })
      await act(store)
      expect(await conflicts(store)).toBe('write_conflict')
      const again = await restarted(directory, store, how)
      expect(await conflicts(again)).toBe('write_conflict')
      expect(await codeOf(again.prewrite(prewriteOf(await again.tso(1), [put('free')])))).toBe('none')
      await again.close()
    }
  })

  test.each(['stop', 'crash'] as const)('after a commit whose write failed, and a %s', async (how) => {
    const directory = await stores.directory()
    const tapped = new TappedEngine()
    const store = await stores.open({ directory, now: clock.now, openEngine: tapped.open })
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('k'), put('other')]))
    tapped.onWrite = async () => {
      throw new EngineFailure('disk full')
    }
    expect(await codeOf(store.commit({ keys: [utf8('other')], startTs, commitTs: FUTURE }))).toBe('storage_unavailable')
    tapped.onWrite = (_, land) => land()
    await tapped.quiet()
    await store.commit({ keys: [utf8('k')], startTs, commitTs: FUTURE })
    expect(await conflicts(await restarted(directory, store, how))).toBe('write_conflict')
  })

  test.each(['stop', 'crash'] as const)(
    'a 1PC that validates its reads while a higher one is written, and a %s',
    async (how) => {
      const directory = await stores.directory()
      const validating = deferred()
      const goOn = deferred()
      const openEngine = async (path: string): Promise<Engine> => {
        const engine = await openLevelDb(path)
        const snapshot: Engine['snapshot'] = () => {
          const real = engine.snapshot()
          const getMany: Engine['getMany'] = async (keys) => {
            validating.resolve()
            await goOn.promise
            return real.getMany(keys)
          }
          return { ...real, getMany }
        }
        return { ...engine, snapshot }
      }
      const store = await stores.open({ directory, now: clock.now, openEngine })
      const reads = { keys: [utf8('read')], ranges: [] }
      const lower = prewriteOf(await store.tso(1), [put('other')], { tryOnePc: true, minCommitTs: FUTURE, reads })
      const slow = store.prewrite(lower)
      await validating.promise
      await write(store, await store.tso(1), FUTURE + 10, [put('k')])
      goOn.resolve()
      await slow
      const again = await restarted(directory, store, how)
      expect(await codeOf(again.prewrite(prewriteOf(FUTURE + 5, [put('k', 'lost')])))).toBe('write_conflict')
    },
  )

  test.each(['stop', 'crash'] as const)('after a 1PC whose reads did not hold, and a %s', async (how) => {
    const directory = await stores.directory()
    const store = await stores.open({ directory, now: clock.now })
    const before = await store.tso(1)
    await write(store, await store.tso(1), await store.tso(1), [put('read')])
    const reads = { keys: [utf8('read')], ranges: [] }
    const refused = prewriteOf(before, [put('other')], { tryOnePc: true, minCommitTs: FUTURE, reads })
    expect(await codeOf(store.prewrite(refused))).toBe('write_conflict')
    await write(store, await store.tso(1), FUTURE, [put('k')])
    expect(await conflicts(await restarted(directory, store, how))).toBe('write_conflict')
  })
})

describe('transactions older than what memory knows', () => {
  async function restartedOver30(): Promise<{ store: Store; tapped: TappedEngine }> {
    const directory = await stores.directory()
    const before = await stores.open({ directory })
    await write(before, 28, 30, [put('k', 'new')])
    await before.close()
    const tapped = new TappedEngine()
    return { store: await stores.open({ directory, openEngine: tapped.open }), tapped }
  }

  test.each([
    [25, 'write_conflict'],
    [29, 'write_conflict'],
    [31, 'none'],
  ])('one that started at %i over a commit at 30: %s', async (startTs, want) => {
    const { store } = await restartedOver30()
    expect(await codeOf(store.prewrite(prewriteOf(startTs, [put('k')])))).toBe(want)
  })

  test('a Rollback record below the newest version hides it from nobody', async () => {
    const { store, tapped } = await restartedOver30()
    await store.rollback({ keys: [utf8('k')], startTs: 20 })
    expect(await codeOf(store.prewrite(prewriteOf(25, [put('k')])))).toBe('write_conflict')
    expect(await codeOf(store.prewrite(prewriteOf(25, [put('k')], { tryOnePc: true })))).toBe('write_conflict')
    await expectNewest(tapped.engine)
  })

  test('a commit below the newest version, in cache or not, is not the newest', async () => {
    for (const isCached of [false, true]) {
      const { store, tapped } = await restartedOver30()
      if (isCached) expect(await read(store, 'k')).toBe('new')
      await store.prewrite(prewriteOf(10, [put('k', 'old')], { skipConstraintCheck: true }))
      await store.commit({ keys: [utf8('k')], startTs: 10, commitTs: 20 })
      expect([await read(store, 'k'), await read(store, 'k', 29)]).toEqual(['new', 'old'])
      expect(await codeOf(store.prewrite(prewriteOf(25, [put('k')])))).toBe('write_conflict')
      await expectNewest(tapped.engine)
    }
  })
})
