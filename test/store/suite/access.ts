import fc from 'fast-check'
import { expect } from 'vitest'
import { LockResolver } from '../../../src/coordinator/lock-resolver.js'
import { KvError } from '../../../src/errors/kv-error.js'
import type { MayAccess } from '../../../src/percolator/access.js'
import type { PrewriteRequest } from '../../../src/percolator/api.js'
import type { Store } from '../../../src/store/store.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../../src/timestamp.js'
import { put, text, utf8 } from '../support.js'
import { lockedKeys } from './contents.js'
import type { Contract } from './contract.js'

const mayAccess: MayAccess = (key) => text(key).startsWith('app/')

/** Keys of everybody's transaction; the caller may access those of `app/`. */
const NAMES = ['app/a', 'app/b', 'secret/c', 'secret/d'] as const

interface Shape {
  readonly names: readonly string[]
  readonly kind: 'two_pc' | 'async' | 'pessimistic'
  /** How far its own client came. */
  readonly ended: 'not yet' | 'primary committed' | 'primary rolled back'
}

const shapesOf = (hasAsyncCommit: boolean): fc.Arbitrary<Shape> =>
  fc.record({
    names: fc.shuffledSubarray([...NAMES], { minLength: 2 }),
    kind: hasAsyncCommit ? fc.constantFrom('two_pc', 'async', 'pessimistic') : fc.constantFrom('two_pc', 'pessimistic'),
    ended: fc.constantFrom('not yet', 'not yet', 'primary committed', 'primary rolled back'),
  })

const CALLS = [
  'commit',
  'rollback',
  'cleanup',
  'status',
  'secondaries',
  'beat',
  'release',
  'resolve',
  'relock',
] as const
interface Call {
  readonly name: (typeof CALLS)[number]
  readonly key: string
  /** Rather than rolled back: committed when the primary was, or elsewhen. */
  readonly at: 'decided' | 'elsewhen' | 'never'
  readonly isForced: boolean
}
const calls: fc.Arbitrary<Call[]> = fc.array(
  fc.record({
    name: fc.constantFrom(...CALLS),
    key: fc.constantFrom('app/a', 'app/b'),
    at: fc.constantFrom('decided', 'elsewhen', 'never'),
    isForced: fc.boolean(),
  }),
  { minLength: 1, maxLength: 5 },
)

class Transaction {
  decidedAt: Timestamp = 0

  constructor(
    readonly store: Store,
    readonly shape: Shape,
    readonly startTs: Timestamp,
    /** Keys of their own, so that one store serves many transactions. */
    readonly run: number,
  ) {}

  key(name: string): Uint8Array {
    return utf8(`${name}${this.run}`)
  }

  get primary(): string {
    return this.shape.names[0] ?? ''
  }

  async begin(): Promise<void> {
    const { store, startTs } = this
    const { names, kind, ended } = this.shape
    const primary = this.key(this.primary)
    const common = { primary, startTs, lockTtl: 3000 }
    if (kind === 'pessimistic')
      await store.acquirePessimisticLock({ ...common, keys: names.map((n) => this.key(n)), forUpdateTs: startTs })
    const prewrite = (some: readonly string[], rest: Partial<PrewriteRequest> = {}) =>
      store.prewrite({ ...common, ...rest, mutations: some.map((n) => put(`${n}${this.run}`)) })
    const secondaries = names.slice(1).map((n) => this.key(n))
    if (kind === 'async') await prewrite(names, { useAsyncCommit: true, secondaries })
    else if (kind === 'two_pc') await prewrite(names)
    // A pessimistic one has prewritten its primary alone, once it ends.
    else if (ended !== 'not yet') await prewrite([this.primary], { forUpdateTs: startTs, pessimisticActions: ['do'] })
    this.decidedAt = kind === 'async' ? await this.lockedAt() : await store.tso(1)
    if (ended === 'primary committed') await store.commit({ keys: [primary], startTs, commitTs: this.decidedAt })
    if (ended === 'primary rolled back') await store.rollback({ keys: [primary], startTs })
  }

  async lockedAt(): Promise<Timestamp> {
    const { locks } = await this.store.scanLock({ maxTs: TIMESTAMP_MAX })
    return Math.max(...locks.filter((lock) => lock.startTs === this.startTs).map((lock) => lock.minCommitTs))
  }

  /** @returns whether it was refused as `forbidden`; what else refuses it does not matter. */
  async attempt({ name, key: named, at, isForced }: Call): Promise<boolean> {
    const { store, startTs } = this
    const later = await store.tso(1)
    const key = this.key(named)
    const keys = [key]
    const commitTs = at === 'decided' ? this.decidedAt : later
    const currentTs = isForced ? TIMESTAMP_MAX - 1 : later
    const ask = { callerStartTs: isForced ? later : 0, currentTs, forceSyncCommit: isForced }
    const lockRequest = { primary: key, startTs, forUpdateTs: later, lockTtl: 99_000, waitTimeout: -1 }
    const tries: Record<Call['name'], () => Promise<unknown>> = {
      commit: () => store.commit({ keys, startTs, commitTs, mayAccess }),
      rollback: () => store.rollback({ keys, startTs, mayAccess }),
      cleanup: () => store.cleanup({ key, startTs, currentTs: isForced ? 0 : later, mayAccess }),
      status: () => store.checkTxnStatus({ primary: key, lockTs: startTs, ...ask, mayAccess }),
      secondaries: () => store.checkSecondaryLocks({ keys, startTs, mayAccess }),
      beat: () => store.txnHeartBeat({ primary: key, startTs, adviseLockTtl: 99_000, minCommitTs: later, mayAccess }),
      release: () => store.pessimisticRollback({ keys, startTs, forUpdateTs: later, mayAccess }),
      resolve: () =>
        store.resolveLock({ txns: [{ startTs, commitTs: at === 'never' ? 0 : commitTs }], keys, mayAccess }),
      relock: () => store.acquirePessimisticLock({ ...lockRequest, keys, mayAccess }),
    }
    try {
      await tries[name]()
    } catch (error) {
      if (!(error instanceof KvError)) throw error
      return error.code === 'forbidden'
    }
    return false
  }

  /** What is there once the server has ended the transaction. @returns the commit_ts on each of its keys; 0: none. */
  async outcome(): Promise<Map<string, Timestamp>> {
    const { locks } = await this.store.scanLock({ maxTs: TIMESTAMP_MAX })
    await new LockResolver(this.store).resolve(locks, TIMESTAMP_MAX)
    const found = new Map<string, Timestamp>()
    for (const name of this.shape.names) {
      const answer = await this.store.get({ key: this.key(name) })
      found.set(name, answer.found ? answer.commitTs : 0)
    }
    return found
  }
}

/** Callers whose tokens reach only some keys. */
export function accessCases({ open, test, kind }: Contract): void {
  const shapes = shapesOf(kind.traits.asyncCommit)

  test('whatever a caller tries who reaches only some keys, a transaction decided elsewhere ends as it would have', {
    tags: ['long'],
  }, async () => {
    const store = await open()
    let run = 0
    await fc.assert(
      fc.asyncProperty(shapes, calls, async (shape, all) => {
        run++
        const txn = new Transaction(store, shape, await store.tso(1), run)
        await txn.begin()
        const hasPrimary = mayAccess(txn.key(txn.primary))
        const isWhole = shape.names.every((name) => mayAccess(txn.key(name)))
        for (const call of all) {
          const isRefused = await txn.attempt(call)
          // Under async commit the keys are known only while the primary stands.
          if (hasPrimary && shape.kind !== 'async') expect(isRefused).toBe(false)
        }
        // Who reaches all that decides may end it otherwise, or commit a secondary alone, which leaves a lock that only they can remove.
        if (hasPrimary && (isWhole || shape.kind !== 'async')) return
        const outcome = await txn.outcome()
        const isCommitted = shape.ended === 'primary committed' || (shape.kind === 'async' && shape.ended === 'not yet')
        for (const [name, commitTs] of outcome) {
          const isPrewritten = shape.kind !== 'pessimistic' || name === txn.primary
          expect([name, commitTs]).toEqual([name, isCommitted && isPrewritten ? txn.decidedAt : 0])
        }
      }),
      { numRuns: Number(process.env['PERKV_TEST_RUNS'] ?? 60) },
    )
  })

  test('costs as much as the request has keys, however many secondaries the primary lists', async () => {
    const store = await open()
    const startTs = await store.tso(1)
    const mutations = Array.from({ length: 500 }, (_, i) => put(`app/${i}`))
    const keys = mutations.map(({ key }) => key)
    const [primary = utf8(''), ...secondaries] = keys
    await store.prewrite({ mutations, primary, startTs, lockTtl: 3000, useAsyncCommit: true, secondaries })
    let asked = 0
    const counting: MayAccess = (key) => {
      asked++
      return mayAccess(key)
    }
    await store.rollback({ keys, startTs, mayAccess: counting })
    expect(asked).toBeLessThan(4 * keys.length)
    expect(await lockedKeys(store)).toEqual([])
  })
}
