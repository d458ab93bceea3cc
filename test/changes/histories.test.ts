import fc from 'fast-check'
import { expect, test } from 'vitest'
import { ChangeFilter } from '../../src/changes/rules/change-filter.js'
import { rangesOf } from '../../src/changes/selection.js'
import type { PrewriteMutation } from '../../src/percolator/api.js'
import type { RangeChange } from '../../src/percolator/change.js'
import type { CompleteStore, Store } from '../../src/store/store.js'
import { LOGICAL_PER_MS, type Timestamp } from '../../src/timestamp.js'
import { codeOf, del, prewriteOf, put, TestClock, testStores, text, unlessRefused, utf8 } from '../store/support.js'
import { type Copy, CopyingFollower, type FollowerOrder } from './follower.js'
import { openChanges } from './support.js'

/** More of them: CI=1 PERKV_TEST_RUNS=2000 npx vitest run test/changes/histories.test.ts */
const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? (process.env['CI'] ? 20 : 10))

const stores = testStores()

const KEYS = ['a', 'ab', 'b', 'ba', 'c', 'd']
const key = fc.constantFrom(...KEYS)
const writes = fc.uniqueArray(
  fc.record({
    key,
    kind: fc.constantFrom('short', 'short', 'long', 'delete', 'lock'),
    /** Of a put: milliseconds until it expires. Many are below 0 or the same. */
    ttl: fc.option(fc.constantFrom(-5, 0, 1, 2, 5, 10, 10, 10, 20), { nil: undefined }),
  }),
  { minLength: 1, maxLength: 4, selector: (write) => write.key },
)
type Writes = typeof writes extends fc.Arbitrary<infer T> ? T : never

const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ type: fc.constant('one phase' as const), writes }) },
  { weight: 4, arbitrary: fc.record({ type: fc.constant('prewrite' as const), writes, isAsync: fc.boolean() }) },
  { weight: 4, arbitrary: fc.record({ type: fc.constantFrom('commit', 'resolve', 'rollback'), which: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('delete range' as const), key }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('collect' as const), back: fc.nat(30) }) },
  { weight: 3, arbitrary: fc.record({ type: fc.constant('rest' as const), turns: fc.nat(12) }) },
  { weight: 3, arbitrary: fc.record({ type: fc.constant('time' as const), ms: fc.constantFrom(1, 2, 5, 10) }) },
)
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

const selection = fc.oneof(
  fc.constant({}),
  fc.record({ prefixes: fc.array(key.map(utf8), { maxLength: 2 }), keys: fc.array(key.map(utf8), { maxLength: 2 }) }),
  fc.record({ start: key.map(utf8) }),
  fc.record({ start: key.map(utf8), end: key.map(utf8) }),
)
const follower: fc.Arbitrary<FollowerOrder> = fc
  .tuple(
    selection,
    fc.record({
      keysOnly: fc.boolean(),
      oldValues: fc.boolean(),
      pauses: fc.array(fc.nat(20), { minLength: 1, maxLength: 4 }),
      hangUps: fc.array(fc.integer({ min: 1, max: 9 }), { maxLength: 4 }),
    }),
  )
  .map(([selected, rest]) => ({ ...selected, ...rest }))

const history = fc.record({
  rounds: fc.array(fc.array(step, { minLength: 1, maxLength: 5 }), { minLength: 3, maxLength: 16 }),
  followers: fc.array(follower, { minLength: 1, maxLength: 4 }),
  /** Small ones make streams read the log, and transactions come in parts. */
  feedBytesMax: fc.constantFrom(1024, 4096, 2 ** 24),
  pageBytesMax: fc.constantFrom(300, 2 ** 23),
})

test('random histories: a copy equals the keys at each resolved_ts', async () => {
  await fc.assert(
    fc.asyncProperty(history, async ({ rounds, followers: orders, feedBytesMax, pageBytesMax }) => {
      const clock = new TestClock()
      const store = await stores.open({ now: clock.now })
      const ledger = new Ledger(store, clock)
      const changes = openChanges(store, { feedBytesMax, pageBytesMax })
      const followers = orders.map((order) => new CopyingFollower(changes, order))
      for (const round of rounds) await Promise.all(round.map((each) => ledger.run(each)))
      await ledger.end()
      clock.ms += 100 // Everything expires.
      const last = await store.tso(1)
      await Promise.all(followers.map((each) => each.endAt(last)))
      for (const [i, { copies, breaches, olds }] of followers.entries()) {
        expect(breaches).toEqual([])
        expect(olds.filter(({ key, ts }) => !ledger.isRemovedAfter(key, ts))).toEqual([])
        for (const copy of copies) ledger.check(copy, orders[i] as FollowerOrder)
      }
      expect(changes.status).toMatchObject({ live: 0, behind: 0 })
      await store.close()
    }),
    { numRuns: RUNS },
  )
})

interface Entry {
  readonly key: string
  readonly value: string | undefined
  readonly commitTs: Timestamp
  /** 0: it does not expire. */
  readonly expireTs: Timestamp
}

const NOTHING: Entry = { key: '', value: undefined, commitTs: 0, expireTs: 0 }

interface OpenTxn {
  readonly startTs: Timestamp
  readonly mutations: readonly PrewriteMutation[]
  readonly minCommitTs: Timestamp | undefined
}

/** Makes commits, and knows what was committed by the answers to them. */
class Ledger {
  readonly #store: Store
  readonly #clock: TestClock
  readonly #entries: Entry[] = []
  readonly #removals: RangeChange[] = []
  readonly #open: OpenTxn[] = []
  #values = 0
  /** A delete_range takes locks too, and with them the rest of a transaction that is half committed. */
  #twoPhase = 0
  #isRemoving = false

  constructor(store: CompleteStore, clock: TestClock) {
    this.#store = store
    this.#clock = clock
    store.log.listen({
      onCommitted: (changes) => {
        for (const change of changes)
          if (change.type === 'delete_range')
            this.#removals.push({ ...change, key: Buffer.from(change.key), end: Buffer.from(change.end) })
      },
      reloaded: () => {},
    })
  }

  async run(step: Step): Promise<void> {
    const store = this.#store
    switch (step.type) {
      case 'one phase': {
        const mutations = this.#mutationsOf(step.writes)
        const request = prewriteOf(await store.tso(1), mutations, {
          tryOnePc: true,
          linearizable: true,
          lockTtl: 60_000,
        })
        const answer = await unlessRefused(store.prewrite(request))
        if (answer?.onePcCommitTs) this.#committed(mutations, answer.onePcCommitTs)
        return
      }
      case 'prewrite': {
        if (this.#isRemoving) return
        this.#twoPhase++
        const mutations = this.#mutationsOf(step.writes)
        const startTs = await store.tso(1)
        const secondaries = mutations.slice(1).map((mutation) => mutation.key)
        const rest = step.isAsync ? { useAsyncCommit: true, secondaries } : {}
        const answer = await unlessRefused(store.prewrite(prewriteOf(startTs, mutations, { ...rest, lockTtl: 60_000 })))
        if (answer) this.#open.push({ startTs, mutations, minCommitTs: answer.minCommitTs || undefined })
        else this.#twoPhase--
        return
      }
      case 'commit':
      case 'resolve':
      case 'rollback':
        return this.#finishOne(step.type, step.which)
      case 'delete range':
        if (this.#twoPhase > 0) return
        this.#isRemoving = true
        await store.deleteRange({ start: utf8(step.key), end: utf8(`${step.key}~`) })
        this.#isRemoving = false
        return
      case 'collect': {
        // It must not pass a transaction whose locks nobody has ended, nor one whose commit is under way.
        const ts = this.#entries.at(-1 - step.back)?.commitTs ?? 0
        if (ts > store.safePoint && this.#twoPhase === 0) await unlessRefused(store.upkeep.collect(ts))
        return
      }
      case 'time':
        this.#clock.ms += step.ms
        return
      case 'rest':
        for (let i = 0; i < step.turns; i++) await new Promise((go) => setImmediate(go))
    }
  }

  #mutationsOf(asked: Writes): PrewriteMutation[] {
    return asked.map((write): PrewriteMutation => {
      if (write.kind === 'delete') return del(write.key)
      if (write.kind === 'lock') return { op: 'lock', key: utf8(write.key) }
      const mutation = put(write.key, `v${this.#values++}${write.kind === 'long' ? '.'.repeat(300) : ''}`)
      return write.ttl === undefined
        ? mutation
        : { ...mutation, expireTs: this.#clock.ts() + write.ttl * LOGICAL_PER_MS }
    })
  }

  #committed(mutations: readonly PrewriteMutation[], commitTs: Timestamp): void {
    for (const mutation of mutations)
      if (mutation.op !== 'lock')
        this.#entries.push({
          key: text(mutation.key),
          value: mutation.op === 'put' ? text(mutation.value ?? utf8('')) : undefined,
          commitTs,
          expireTs: mutation.expireTs ?? 0,
        })
  }

  async #finishOne(how: 'commit' | 'resolve' | 'rollback', which: number): Promise<void> {
    const [txn] = this.#open.splice(which % Math.max(1, this.#open.length), 1)
    if (txn === undefined) return
    await this.#finish(how, txn)
    this.#twoPhase--
  }

  async #finish(how: 'commit' | 'resolve' | 'rollback', { startTs, mutations, minCommitTs }: OpenTxn): Promise<void> {
    const store = this.#store
    const keys = mutations.map((mutation) => mutation.key)
    if (how === 'rollback') return void (await unlessRefused(store.rollback({ keys, startTs })))
    const commitTs = minCommitTs ?? (await store.tso(1))
    const first = await codeOf(store.commit({ keys: keys.slice(0, 1), startTs, commitTs }))
    // It is on record before resolved_ts can pass the other keys' locks, or not committed at all.
    if (first !== 'none') return void (await unlessRefused(store.rollback({ keys, startTs })))
    this.#committed(mutations, commitTs)
    if (how === 'commit') await unlessRefused(store.commit({ keys, startTs, commitTs }))
    else await unlessRefused(store.resolveLock({ txns: [{ startTs, commitTs }] }))
  }

  /** No lock is left. */
  async end(): Promise<void> {
    while (this.#open.length > 0) await this.#finishOne('commit', 0)
    const { locks } = await this.#store.scanLock({ maxTs: Number.MAX_SAFE_INTEGER })
    for (const lock of locks) await this.#store.rollback({ keys: [lock.key], startTs: lock.startTs })
  }

  /** A delete_range takes what was before it, and older values with it. */
  isRemovedAfter(key: string, ts: Timestamp): boolean {
    return this.#removals.some(
      (removal) => removal.commitTs > ts && text(removal.key) <= key && key < text(removal.end),
    )
  }

  /** Keys that a later delete_range has taken may be absent from a copy. */
  check({ ts, pairs }: Copy, order: FollowerOrder): void {
    const filter = new ChangeFilter(rangesOf(order))
    for (const name of KEYS) {
      const isIn = (removal: RangeChange): boolean => text(removal.key) <= name && name < text(removal.end)
      const removals = this.#removals.filter(isIn).map(({ commitTs }) => commitTs)
      const removedTs = Math.max(0, ...removals.filter((at) => at <= ts))
      const newest = this.#entries
        .filter((entry) => entry.key === name && entry.commitTs <= ts)
        .reduce((a, b) => (b.commitTs > a.commitTs ? b : a), NOTHING)
      const hasExpired = newest.expireTs !== 0 && newest.expireTs <= ts
      const isThere =
        newest.commitTs > removedTs &&
        !hasExpired &&
        filter.has({ type: 'put', key: utf8(name), commitTs: ts, startTs: 0 })
      const value = isThere ? newest.value : undefined
      const expected = value !== undefined && order.keysOnly ? '' : value
      const mayLack = removals.some((at) => at > ts)
      if (!mayLack) expect([ts, name, pairs.get(name)]).toEqual([ts, name, expected])
    }
  }
}
