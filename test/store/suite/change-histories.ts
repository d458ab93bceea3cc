import fc from 'fast-check'
import { expect } from 'vitest'
import type { KeyRange } from '../../../src/bytes/key-range.js'
import type { PrewriteMutation } from '../../../src/percolator/api.js'
import type { CompleteStore } from '../../../src/store/store.js'
import type { Timestamp } from '../../../src/timestamp.js'
import { del, prewriteOf, put, text, unlessRefused, utf8 } from '../support.js'
import { asText, changesOf, compareRead, historyOf, isIn, isRange, type ReadChange } from './change-readings.js'
import { LONG } from './contents.js'
import type { Contract } from './contract.js'

/** More of them: PERKV_TEST_RUNS=2000 npx vitest run test/store/leveldb/contract.test.ts -t histories */
const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 25)

const KEYS = ['a', 'ab', 'b', 'c', 'd']
const KEY_BYTES = KEYS.map(utf8)

const writes = fc.uniqueArray(
  fc.record({ key: fc.constantFrom(...KEYS), kind: fc.constantFrom('short', 'short', 'long', 'delete', 'lock') }),
  { minLength: 1, maxLength: 3, selector: ({ key }) => key },
)
type Writes = typeof writes extends fc.Arbitrary<infer T> ? T : never

const bound = fc.option(fc.constantFrom(...KEYS, 'aa', 'z'), { nil: undefined })
const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ type: fc.constant('one phase' as const), writes }) },
  {
    weight: 4,
    arbitrary: fc.record({
      type: fc.constant('prewrite' as const),
      writes,
      isAsync: fc.boolean(),
      /** Begins at the oldest timestamp that no transaction has used yet. */
      isLate: fc.boolean(),
    }),
  },
  { weight: 5, arbitrary: fc.record({ type: fc.constantFrom('commit', 'resolve', 'rollback'), which: fc.nat(9) }) },
  {
    weight: 2,
    arbitrary: fc.record({ type: fc.constant('overlapping rollback' as const), key: fc.constantFrom(...KEYS) }),
  },
  { weight: 3, arbitrary: fc.record({ type: fc.constant('follow' as const) }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('delete range' as const), start: fc.constantFrom(...KEYS) }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('collect' as const) }) },
)
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never
/** The steps of one round run at once. */
const rounds = fc.array(fc.array(step, { minLength: 1, maxLength: 5 }), { minLength: 4, maxLength: 14 })
const windows = fc.array(
  fc.record({
    from: fc.nat(99),
    to: fc.nat(99),
    ranges: fc.option(fc.array(fc.tuple(bound, bound), { maxLength: 3 })),
  }),
  { maxLength: 8 },
)

interface OpenTxn {
  readonly startTs: Timestamp
  readonly keys: readonly string[]
  readonly minCommitTs: Timestamp
  readonly isAsync: boolean
}

/** A follower's reading: everything above the bound of the log, up to a resolved_ts. */
interface Reading {
  readonly since: Timestamp
  readonly resolved: Timestamp
  readonly changes: readonly ReadChange[]
}

/** Random transactions of all kinds at once, and followers between them. */
export function changeHistoryCases({ open, test, kind }: Contract): void {
  test('histories: what is read up to a resolved_ts never changes, and is what the keys hold', {
    tags: ['long'],
  }, async () => {
    await fc.assert(
      fc.asyncProperty(rounds, windows, async (all, looks) => {
        const store = await open()
        const history = new History(store, kind.traits.onePhaseCommit, kind.traits.asyncCommit)
        for (const round of all) {
          const running = round.map((each) => history.run(each))
          store.log.resolve()
          await Promise.all(running)
        }
        await history.end()
        await history.check(looks)
        await store.close()
      }),
      { numRuns: RUNS },
    )
  })
}

class History {
  readonly #store: CompleteStore
  readonly #hasOnePhase: boolean
  readonly #hasAsync: boolean
  readonly #open: OpenTxn[] = []
  readonly #unused: Timestamp[] = []
  readonly #readings: Reading[] = []
  readonly #told: ReadChange[] = []
  readonly #late: ReadChange[] = []
  #values = 0
  #removals = 0

  constructor(store: CompleteStore, hasOnePhase: boolean, hasAsync: boolean) {
    this.#store = store
    this.#hasOnePhase = hasOnePhase
    this.#hasAsync = hasAsync
    store.log.listen({
      onCommitted: (changes) => {
        // Taking resolved_ts here is legal: the store has no change of its own half done.
        const resolved = this.#resolved
        for (const change of changes.map(asText)) {
          if (change.commitTs <= resolved) this.#late.push(change)
          this.#told.push(change)
        }
      },
      reloaded: () => {},
    })
  }

  #resolved: Timestamp = 0

  #resolve(): Timestamp {
    const resolved = this.#store.log.resolve()
    if (resolved < this.#resolved) throw new Error(`resolved_ts fell from ${this.#resolved} to ${resolved}`)
    this.#resolved = resolved
    return resolved
  }

  async run(step: Step): Promise<void> {
    const store = this.#store
    switch (step.type) {
      case 'one phase': {
        if (!this.#hasOnePhase) return
        const startTs = await store.tso(1)
        const request = prewriteOf(startTs, this.#mutationsOf(step.writes), { tryOnePc: true, linearizable: true })
        return void (await unlessRefused(store.prewrite(request)))
      }
      case 'prewrite':
        return this.#prewrite(step)
      case 'commit':
      case 'resolve':
      case 'rollback':
        return this.#finish(step.type, step.which)
      case 'overlapping rollback': {
        const commitTs = this.#told.findLast(({ key }) => key === step.key)?.commitTs
        if (commitTs === undefined) return
        return void (await unlessRefused(store.cleanup({ key: utf8(step.key), startTs: commitTs, currentTs: 0 })))
      }
      case 'follow': {
        const since = store.log.start
        const resolved = this.#resolve()
        if (resolved < since) return // A collection is above all that was handed out.
        return unlessRefused(
          changesOf(store, { since, upTo: resolved }).then((changes) => {
            this.#readings.push({ since, resolved, changes })
          }),
        )
      }
      case 'delete range':
        this.#removals++
        return store.deleteRange({ start: utf8(step.start), end: utf8(`${step.start}~`) })
      case 'collect': {
        const oldest = Math.min(...this.#open.map(({ startTs }) => startTs))
        const ts = await store.tso(1)
        // Half of what there is, so that followers keep something to read.
        const safePoint = Math.min(ts, oldest - 1, this.#told[this.#told.length >> 1]?.commitTs ?? 0)
        if (safePoint > store.safePoint && this.#open.length === 0) await store.upkeep.collect(safePoint)
      }
    }
  }

  #mutationsOf(keys: Writes): PrewriteMutation[] {
    return keys.map(({ key, kind }): PrewriteMutation => {
      if (kind === 'delete') return del(key)
      if (kind === 'lock') return { op: 'lock', key: utf8(key) }
      const value = `v${this.#values++}`
      return put(key, kind === 'long' ? value + LONG : value)
    })
  }

  async #prewrite({ writes: asked, isAsync, isLate }: Extract<Step, { type: 'prewrite' }>): Promise<void> {
    const store = this.#store
    this.#unused.push((await store.tso(2)) - 1)
    const startTs = isLate ? (this.#unused.shift() as Timestamp) : await store.tso(1)
    const useAsyncCommit = isAsync && this.#hasAsync
    const mutations = this.#mutationsOf(asked)
    const secondaries = mutations.slice(1).map(({ key }) => key)
    const rest = useAsyncCommit ? { useAsyncCommit, secondaries } : {}
    await unlessRefused(
      store.prewrite(prewriteOf(startTs, mutations, rest)).then(({ minCommitTs }) => {
        const keys = asked.map(({ key }) => key)
        this.#open.push({ startTs, keys, minCommitTs: minCommitTs ?? 0, isAsync: minCommitTs !== undefined })
      }),
    )
  }

  async #finish(how: 'commit' | 'resolve' | 'rollback', which: number): Promise<void> {
    const [txn] = this.#open.splice(which % Math.max(1, this.#open.length), 1)
    if (txn === undefined) return
    const store = this.#store
    const { startTs } = txn
    const keys = txn.keys.map(utf8)
    if (how === 'rollback') return void (await unlessRefused(store.rollback({ keys, startTs })))
    const commitTs = txn.isAsync ? txn.minCommitTs : await store.tso(1)
    const first = keys.slice(0, 1)
    await unlessRefused(store.commit({ keys: first, startTs, commitTs }))
    if (how === 'commit') return void (await unlessRefused(store.commit({ keys, startTs, commitTs })))
    await unlessRefused(store.resolveLock({ txns: [{ startTs, commitTs }] }))
  }

  /** No lock is left, and resolved_ts passes everything. */
  async end(): Promise<void> {
    while (this.#open.length > 0) await this.#finish('commit', 0)
    const { locks } = await this.#store.scanLock({ maxTs: Number.MAX_SAFE_INTEGER })
    for (const { key, startTs } of locks) await this.#store.rollback({ keys: [key], startTs })
    const ts = await this.#store.tso(1)
    expect(this.#resolve()).toBe(ts)
  }

  async check(looks: typeof windows extends fc.Arbitrary<infer T> ? T : never): Promise<void> {
    const store = this.#store
    const since = store.log.start
    const whole = await changesOf(store, { since })
    expect([...whole].sort(compareRead)).toEqual(whole)
    const removals = whole.filter(isRange)
    if (since === 0) expect(removals).toHaveLength(this.#removals)
    // A change that a delete_range behind it took may be left out.
    const isTaken = (change: ReadChange): boolean => removals.some((removal) => isRemoved(change, removal))
    const written = whole.filter((change) => !isRange(change) && !isTaken(change))
    expect(written).toEqual((await historyOf(store, KEY_BYTES)).filter(({ commitTs }) => commitTs > since))
    if (since === 0) await this.#replay(whole)

    for (const { from, to, ranges } of looks) {
      const times = [since, ...whole.map(({ commitTs }) => commitTs), this.#resolved]
      const [low, high] = [times[from % times.length] ?? 0, times[to % times.length] ?? 0].sort((a, b) => a - b)
      const keyRanges = ranges?.map(([start, end]) => ({ start: bytesOf(start), end: bytesOf(end) }))
      const request = { since: low ?? 0, upTo: high ?? 0, ranges: keyRanges && apart(keyRanges) }
      const expected = whole.filter(
        (change) =>
          change.commitTs > request.since &&
          change.commitTs <= request.upTo &&
          (request.ranges === undefined || request.ranges.some((range) => touches(range, change))),
      )
      expect(await changesOf(store, request)).toEqual(expected)
      const bare = expected.map(({ value: _, ...rest }) => rest)
      const keysOnly = await changesOf(store, { ...request, keysOnly: true })
      expect(keysOnly.filter((change) => !isTaken(change))).toEqual(bare.filter((change) => !isTaken(change)))
    }

    expect(this.#late).toEqual([])
    const names = this.#told.map(nameOf)
    expect(new Set(names).size).toBe(names.length)
    for (const change of whole) expect(names).toContain(nameOf(change))
    // A live feed has no second look: what it was told stands, unless a delete_range above it took it.
    const toldAbove = this.#told.filter((change) => change.commitTs > since && !isTaken(change))
    expect(toldAbove.map(nameOf).sort()).toEqual(
      whole
        .filter((change) => !isTaken(change))
        .map(nameOf)
        .sort(),
    )
    for (const { resolved, changes, since: begin } of this.#readings) {
      const bottom = Math.max(begin, since)
      const stands = (list: readonly ReadChange[]): ReadChange[] =>
        list.filter(
          (change) =>
            change.commitTs > bottom &&
            change.commitTs <= resolved &&
            !removals.some((removal) => removal.commitTs > resolved && isRemoved(change, removal)),
        )
      expect(stands(changes)).toEqual(stands(whole))
    }
  }

  async #replay(changes: readonly ReadChange[]): Promise<void> {
    const replayed = new Map<string, string>()
    for (const change of changes) {
      if (change.type === 'put') replayed.set(change.key, change.value ?? '')
      else if (change.type === 'delete') replayed.delete(change.key)
      else for (const key of KEYS) if (key >= change.key && key < (change.end ?? '')) replayed.delete(key)
    }
    const { pairs } = await this.#store.scan({ ts: this.#resolved, limit: 100 })
    expect([...replayed].sort()).toEqual(pairs.map(({ key, value = utf8('') }) => [text(key), text(value)]))
  }
}

const nameOf = ({ type, key, commitTs, startTs }: ReadChange): string => `${type} ${key} ${commitTs} ${startTs}`

function isRemoved(change: ReadChange, removal: ReadChange): boolean {
  return (
    !isRange(change) &&
    change.commitTs <= removal.commitTs && // At the same one it comes first, by its start_ts.
    change.key >= removal.key &&
    change.key < (removal.end ?? '')
  )
}

function touches(range: KeyRange, change: ReadChange): boolean {
  if (!isRange(change)) return isIn(range, change.key)
  const [start, end] = [range.start && text(range.start), range.end && text(range.end)]
  return (start === undefined || start < (change.end ?? '')) && (end === undefined || change.key < end)
}

const bytesOf = (key: string | undefined): Uint8Array | undefined => (key === undefined ? undefined : utf8(key))

/** Those that are neither empty nor overlap one before. */
function apart(ranges: readonly KeyRange[]): KeyRange[] {
  const taken: KeyRange[] = []
  const overlap = (a: KeyRange, b: KeyRange): boolean =>
    (a.start === undefined || b.end === undefined || text(a.start) < text(b.end)) &&
    (b.start === undefined || a.end === undefined || text(b.start) < text(a.end))
  for (const range of ranges) {
    const isEmpty = range.start !== undefined && range.end !== undefined && text(range.start) >= text(range.end)
    if (!isEmpty && !taken.some((each) => overlap(each, range))) taken.push(range)
  }
  return taken
}
