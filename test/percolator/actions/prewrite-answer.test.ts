import fc from 'fast-check'
import { expect, test } from 'vitest'
import { checkTxnStatus } from '../../../src/percolator/actions/check-txn-status.js'
import { commit } from '../../../src/percolator/actions/commit.js'
import { prewrite } from '../../../src/percolator/actions/prewrite.js'
import { rollback } from '../../../src/percolator/actions/rollback.js'
import { txnHeartBeat } from '../../../src/percolator/actions/txn-heart-beat.js'
import type { PrewriteAnswer, PrewriteMutation, PrewriteRequest } from '../../../src/percolator/api.js'
import type { Lock } from '../../../src/percolator/lock.js'
import { done, type Mutation, type RowView } from '../../../src/percolator/row.js'
import { applyTo, bytes, KEY, putAt, rowOf } from '../builders.js'

/** The transaction: a primary, two secondaries, and a key that it only checks. */
const START = 10
const NAMES = ['p', 's', 't', 'q'] as const
type Name = (typeof NAMES)[number]
const WRITTEN: readonly Name[] = ['p', 's', 't']

interface Prewrite {
  readonly step: 'prewrite'
  readonly keys: readonly Name[]
  /** 1PC needs all keys in one request, so it takes them all. */
  readonly kind: 'two_pc' | 'async' | 'one_pc'
  readonly minCommitTs: number
  readonly maxCommitTs: number
}
type Step =
  | Prewrite
  | { readonly step: 'read' | 'push' | 'heart_beat'; readonly ts: number }
  | { readonly step: 'unlock' | 'roll_back'; readonly key: Name }
  | { readonly step: 'resolve' | 'insert_q' }

const ts = fc.integer({ min: START, max: 200 })
const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        step: fc.constant('prewrite' as const),
        keys: fc.oneof(
          fc.shuffledSubarray([...NAMES], { minLength: NAMES.length }),
          fc.shuffledSubarray([...NAMES], { minLength: 1 }),
        ),
        kind: fc.constantFrom('async', 'async', 'async', 'one_pc', 'two_pc'),
        minCommitTs: fc.oneof(fc.constant(0), ts),
        maxCommitTs: fc.oneof(fc.constant(0), ts),
      }),
    },
    { weight: 2, arbitrary: fc.record({ step: fc.constantFrom('read', 'push', 'heart_beat'), ts } as const) },
    {
      weight: 1,
      arbitrary: fc.record({ step: fc.constantFrom('unlock', 'roll_back'), key: fc.constantFrom(...WRITTEN) } as const),
    },
    { weight: 1, arbitrary: fc.record({ step: fc.constantFrom('resolve', 'insert_q') } as const) },
  ),
  { maxLength: 12 },
)

/** Rows and max_ts as a store would keep them. */
class World {
  readonly rows = new Map<Name, RowView>(NAMES.map((name) => [name, rowOf({ key: bytes(name) })]))
  maxTs = 5

  /** @param primaryOp `check_not_exists`: a client that chose a primary which it does not write. */
  constructor(readonly primaryOp: 'put' | 'check_not_exists') {}

  row(name: Name): RowView {
    return this.rows.get(name) ?? rowOf()
  }

  apply(mutations: readonly Mutation[]): void {
    for (const [name, row] of this.rows) this.rows.set(name, applyTo(row, mutations))
  }

  lock(name: Name): Lock | undefined {
    return this.row(name).lock
  }

  get committedAt(): readonly number[] {
    const commits = [...this.rows.values()].flatMap(({ writes }) =>
      writes.filter(({ startTs, type }) => startTs === START && type !== 'rollback'),
    )
    return [...new Set(commits.map(({ commitTs }) => commitTs))]
  }

  /** The commit_ts that others work out from the locks; undefined where they can't commit without the client. */
  resolved(): number | undefined {
    const primary = this.lock('p')
    if (primary === undefined || !primary.useAsyncCommit) return undefined
    const secondaries = primary.secondaries.map((key) => this.lock(Buffer.from(key).toString() as Name))
    if (secondaries.some((lock) => lock === undefined || !lock.useAsyncCommit)) return undefined
    return Math.max(primary.minCommitTs, ...secondaries.map((lock) => lock?.minCommitTs ?? 0))
  }

  prewrite({ keys: some, kind, minCommitTs, maxCommitTs }: Prewrite): void {
    const keys = kind === 'one_pc' ? [...some, ...NAMES.filter((name) => !some.includes(name))] : some
    const request: PrewriteRequest = {
      mutations: keys.map((name) => this.#mutationOf(name)),
      primary: bytes('p'),
      startTs: START,
      lockTtl: 3000,
      useAsyncCommit: kind === 'async',
      secondaries: kind === 'async' && keys.includes('p') ? [bytes('s'), bytes('t')] : [],
      tryOnePc: kind === 'one_pc',
      minCommitTs,
      maxCommitTs,
    }
    const rows = keys.map((name) => this.row(name))
    const outcome = prewrite(rows, request, { maxTs: this.maxTs, shortValueBytesMax: 255 })
    if (!outcome.ok) {
      expect(
        keys.some((name) => this.#isCommitted(name)),
        'a repeat after the commit succeeds',
      ).toBe(false)
      return
    }
    this.apply(outcome.mutations)
    this.#expectTruth(keys, outcome.value)
  }

  #mutationOf(name: Name): PrewriteMutation {
    const op = name === 'q' ? 'check_not_exists' : name === 'p' ? this.primaryOp : 'put'
    return { op, key: bytes(name), ...(op === 'put' ? { value: bytes('v') } : {}) }
  }

  #isCommitted(name: Name): boolean {
    return this.row(name).writes.some(({ startTs, type }) => startTs === START && type !== 'rollback')
  }

  #expectTruth(keys: readonly Name[], { minCommitTs, onePcCommitTs }: PrewriteAnswer): void {
    const [commitTs] = this.committedAt
    if (keys.some((name) => this.#isCommitted(name))) {
      expect(minCommitTs ?? onePcCommitTs).toBe(commitTs)
      return
    }
    const locks = keys.flatMap((name) => this.lock(name) ?? [])
    const isAll = WRITTEN.every((name) => keys.includes(name))
    if (locks.length === 0) {
      expect(minCommitTs ?? onePcCommitTs ?? START + 1).toBeGreaterThan(START)
    } else if (minCommitTs !== undefined) {
      expect(onePcCommitTs).toBeUndefined()
      expect(locks.map(({ useAsyncCommit }) => useAsyncCommit)).not.toContain(false)
      expect(minCommitTs).toBe(Math.max(...locks.map((lock) => lock.minCommitTs)))
      if (isAll) expect(minCommitTs).toBe(this.resolved())
    } else {
      expect(onePcCommitTs).toBeUndefined()
      if (this.lock('p') !== undefined) expect(locks.map(({ useAsyncCommit }) => useAsyncCommit)).toContain(false)
      if (isAll) expect(this.resolved()).toBeUndefined()
    }
  }

  run(step: Step): void {
    if (step.step === 'prewrite') this.prewrite(step)
    else if (step.step === 'read') this.maxTs = Math.max(this.maxTs, step.ts)
    else if (step.step === 'push') {
      const pushed = { lockTs: START, callerStartTs: step.ts, currentTs: step.ts, forceSyncCommit: true }
      const outcome = checkTxnStatus(this.row('p'), { primary: KEY, ...pushed })
      if (outcome.ok) this.apply(outcome.mutations)
    } else if (step.step === 'heart_beat') {
      const beat = { primary: KEY, startTs: START, adviseLockTtl: 1, minCommitTs: step.ts }
      const outcome = txnHeartBeat(this.row('p'), beat)
      if (outcome.ok) this.apply(outcome.mutations)
    } else if (step.step === 'resolve') this.#resolve()
    else if (step.step === 'insert_q') {
      const at = Math.max(START, this.maxTs) + 1
      this.apply([{ type: 'put-write', key: bytes('q'), write: putAt(at, at + 1) }])
      this.maxTs = at + 1
    } else if ('key' in step && this.committedAt.length === 0) {
      const mutations: Mutation[] = [{ type: 'delete-lock', key: bytes(step.key) }]
      const outcome = step.step === 'unlock' ? done(undefined, mutations) : rollback(this.row(step.key), START)
      if (outcome.ok) this.apply(outcome.mutations)
    }
  }

  #resolve(): void {
    const commitTs = this.resolved()
    if (commitTs === undefined) return
    for (const name of WRITTEN) {
      const outcome = commit(this.row(name), { startTs: START, commitTs, isDecided: name !== 'p' })
      if (!outcome.ok) throw outcome.error
      this.apply(outcome.mutations)
    }
  }
}

test('whatever came before, the answer of a prewrite is what others work out from the locks', {
  tags: ['long'],
}, () => {
  fc.assert(
    fc.property(fc.constantFrom('put', 'put', 'put', 'check_not_exists'), steps, (primaryOp, all) => {
      const world = new World(primaryOp)
      for (const step of all) {
        world.run(step)
        expect(world.committedAt.length).toBeLessThanOrEqual(1)
      }
    }),
    {
      numRuns: 5000,
      examples: [
        [
          'put',
          [
            { step: 'prewrite', keys: ['p', 's', 't', 'q'], kind: 'async', minCommitTs: 0, maxCommitTs: 0 },
            { step: 'read', ts: 100 },
            { step: 'prewrite', keys: ['p', 's', 't', 'q'], kind: 'async', minCommitTs: 0, maxCommitTs: 0 },
          ],
        ],
        [
          'put',
          [
            { step: 'prewrite', keys: ['p', 's', 't'], kind: 'async', minCommitTs: 0, maxCommitTs: 50 },
            { step: 'push', ts: 100 },
            { step: 'prewrite', keys: ['p', 's', 't'], kind: 'async', minCommitTs: 0, maxCommitTs: 50 },
          ],
        ],
        [
          'put',
          [
            { step: 'prewrite', keys: ['q', 'p', 's', 't'], kind: 'one_pc', minCommitTs: 0, maxCommitTs: 0 },
            { step: 'insert_q' },
            { step: 'prewrite', keys: ['q', 'p', 's', 't'], kind: 'one_pc', minCommitTs: 0, maxCommitTs: 0 },
          ],
        ],
      ],
    },
  )
})
