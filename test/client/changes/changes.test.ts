import * as fc from 'fast-check'
import { describe, expect, test, vi } from 'vitest'
import { changesOf } from '../../../src/client/changes/changes.js'
import type { ChangesOptions } from '../../../src/client/changes/changes-options.js'
import { type ChangedTxn, KvError } from '../../../src/client/index.js'
import { failureOf } from '../../coordinator/support.js'
import { AWAY, type Connection, FakeFeed, type FakeTxn, inOrder } from './fake-feed.js'

vi.mock('../../../src/event-loop/sleep.js', () => ({ sleep: async () => {} }))

function loopOver(feed: FakeFeed, options: ChangesOptions<'text', false, false> = {}, stop = new AbortController()) {
  const backend = {
    changes: feed as never,
    during: <T>(call: () => Promise<T>) => call(),
    isAway: (error: unknown) => error === AWAY,
    readTs: () => feed.now,
  }
  return changesOf(backend, options, stop.signal)
}

/** The transactions up to the end of the feed. */
async function allOf(feed: FakeFeed, options: ChangesOptions<'text', false, false> = {}): Promise<ChangedTxn[]> {
  const stop = new AbortController()
  const txns: ChangedTxn[] = []
  const onResolved = (ts: number): void => {
    if (ts === feed.resolvedTs) stop.abort()
  }
  for await (const txn of loopOver(feed, { ...options, onResolved }, stop)) txns.push(txn)
  expect(feed.open).toBe(0)
  return txns
}

/** Parts put together. */
function whole(txns: readonly ChangedTxn[]): (FakeTxn & { readonly isSnapshot: boolean })[] {
  const joined: { isSnapshot: boolean; commitTs: number; startTs: number; keys: string[] }[] = []
  let parts = 0
  for (const { isSnapshot, commitTs, startTs, changes, part, isLast } of txns) {
    const keys = changes.map((change) => ('key' in change ? change.key : ''))
    expect(part).toBe(parts)
    const last = joined.at(-1)
    if (part === 0) joined.push({ isSnapshot, commitTs, startTs, keys })
    else last?.keys.push(...keys)
    parts = isLast ? 0 : parts + 1
  }
  expect(parts).toBe(0)
  return joined
}

const connection: fc.Arbitrary<Connection> = fc.record({
  batches: fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 6 }),
  cutAfter: fc.integer({ min: 0, max: 3 }),
  endsAfter: fc.integer({ min: 0, max: 20 }),
  end: fc.constantFrom('ends', 'fails'),
})
const keys = fc.uniqueArray(fc.constantFrom(...'abcdefgh'), { minLength: 1, maxLength: 6 }).map((all) => all.toSorted())
const txns = fc
  .uniqueArray(
    fc.record({ commitTs: fc.integer({ min: 101, max: 112 }), startTs: fc.integer({ min: 50, max: 53 }), keys }),
    {
      maxLength: 12,
      selector: ({ commitTs, startTs }) => `${commitTs} ${startTs}`,
    },
  )
  .map(inOrder)
const first: Connection = { batches: [], cutAfter: 0, endsAfter: 0, end: 'ends' }

describe('over connections that end anywhere', () => {
  test('each transaction is given once, in order, from a timestamp', async () => {
    await fc.assert(
      fc.asyncProperty(txns, fc.array(connection, { maxLength: 8 }), async (txns, connections) => {
        const feed = new FakeFeed(txns, [first, ...connections])
        const given = await allOf(feed, { sinceTs: 100 })
        expect(whole(given)).toEqual(txns.map((txn) => ({ isSnapshot: false, ...txn })))
      }),
    )
  })

  test('the same behind a snapshot, whose pairs are given once', async () => {
    await fc.assert(
      fc.asyncProperty(keys, txns, fc.array(connection, { maxLength: 8 }), async (keys, txns, connections) => {
        const feed = new FakeFeed(txns, [first, ...connections], { ts: 100, keys })
        const given = await allOf(feed, { snapshot: true })
        const snapshot = { isSnapshot: true, commitTs: 100, startTs: 100, keys }
        expect(whole(given)).toEqual([snapshot, ...txns.map((txn) => ({ isSnapshot: false, ...txn }))])
      }),
    )
  })

  test('a loop that begins at a position is given what follows it', async () => {
    await fc.assert(
      fc.asyncProperty(keys, txns, fc.array(connection, { maxLength: 4 }), async (keys, txns, connections) => {
        const feed = new FakeFeed(txns, [first, ...connections], { ts: 100, keys })
        const given = await allOf(feed, { snapshot: true })
        const namesOf = (txns: readonly ChangedTxn[]): string[] =>
          txns.flatMap(({ commitTs, startTs, changes }) =>
            changes.map((change) => `${commitTs} ${startTs} ${'key' in change ? change.key : ''}`),
          )
        const all = namesOf(given)
        let before = 0
        for (const { commitTs, isSnapshot, changes, isLast, position } of given) {
          before += changes.length
          const rest = namesOf(await allOf(new FakeFeed(txns, [], feed.snapshot), { position, snapshot: true }))
          const isComplete = isSnapshot || position === String(commitTs)
          if (!isComplete) {
            expect(position).toBe(String(commitTs - 1))
            expect(!isLast || given.some((other) => other.commitTs === commitTs && other.position !== position)).toBe(
              true,
            )
          }
          expect(rest).toEqual(
            isComplete ? all.slice(before) : all.filter((name) => Number(name.split(' ')[0]) >= commitTs),
          )
        }
      }),
      { numRuns: 50 },
    )
  })
})

describe('a connection that ends', () => {
  const TXNS: FakeTxn[] = [
    { commitTs: 101, startTs: 90, keys: ['a'] },
    { commitTs: 102, startTs: 91, keys: ['b'] },
  ]

  test('before anything came: the loop begins where it was called, and not later', async () => {
    const feed = new FakeFeed(TXNS, [first])
    expect(whole(await allOf(feed))).toHaveLength(2)
    expect(feed.requests.map(({ sinceTs }) => sinceTs)).toEqual([100, 100])
  })

  test('because changes were collected: the loop throws', async () => {
    const feed = new FakeFeed(TXNS, [first])
    const collected = new KvError('ts_below_safe_point', 'collected', { safePoint: 500 })
    const [stream] = [feed.stream.bind(feed)]
    feed.stream = async function* (request) {
      if (feed.requests.length > 0) throw collected
      yield* stream(request)
    }
    expect(await failureOf(allOf(feed, { sinceTs: 1 }))).toBe(collected)
  })

  test('onError is told of a database that is away; what it throws ends the loop', async () => {
    const feed = new FakeFeed(TXNS, [{ ...first, end: 'fails' }])
    const errors: unknown[] = []
    await allOf(feed, { onError: (error) => errors.push(error) })
    expect(errors).toEqual([AWAY])
    const enough = new Error('enough')
    const again = new FakeFeed(TXNS, [{ ...first, end: 'fails' }])
    const onError = (): never => {
      throw enough
    }
    expect(await failureOf(allOf(again, { onError }))).toBe(enough)
    expect(again.open).toBe(0)
  })
})

test('a database that was never reached is an error', async () => {
  const feed = new FakeFeed([])
  // biome-ignore lint/correctness/useYield: it fails at once
  feed.stream = async function* () {
    throw AWAY
  }
  expect(await failureOf(allOf(feed))).toBe(AWAY)
})

test('onResolved is waited for, behind all that it covers', async () => {
  const feed = new FakeFeed([{ commitTs: 101, startTs: 90, keys: ['a'] }])
  const seen: unknown[] = []
  const stop = new AbortController()
  const onResolved = async (ts: number): Promise<void> => {
    seen.push(`${ts} begins`)
    await Promise.resolve()
    seen.push('ends')
    stop.abort()
  }
  for await (const { commitTs } of loopOver(feed, { onResolved }, stop)) seen.push(commitTs)
  expect(seen).toEqual([101, '111 begins', 'ends'])
})

test('a loop that is left frees its connection', async () => {
  const feed = new FakeFeed([{ commitTs: 101, startTs: 90, keys: ['a'] }])
  for await (const _ of loopOver(feed)) {
    expect(feed.open).toBe(1)
    break
  }
  expect(feed.open).toBe(0)
})
