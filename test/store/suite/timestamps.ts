import { expect } from 'vitest'
import type { Store } from '../../../src/store/store.js'
import { physicalMs, timestampFromMs } from '../../../src/timestamp.js'
import { codeOf, failureOf, prewriteOf, put, read, START_MS, TestClock, utf8, write } from '../support.js'
import type { Contract } from './contract.js'

const HOUR_MS = 3_600_000

/** The store's clock, what it hands out, and the ages of locks. */
export function timestampCases({ open, test, needing }: Contract): void {
  test('tso hands out ranges, the last of each, and none twice', async () => {
    const store = await open({ now: () => START_MS })
    const first = await store.tso(1)
    const ranges = await Promise.all(
      [10, 1, 100].map(async (count) => {
        const last = await store.tso(count)
        return { before: last - count, last }
      }),
    )
    ranges.sort((one, other) => one.last - other.last) // On a table that answers late they come in any order.
    const lasts = [first, ...ranges.map(({ last }) => last)]
    expect(ranges.map(({ before }) => before)).toEqual(lasts.slice(0, -1))
    expect(physicalMs(first)).toBe(START_MS)
    expect(await store.tsoForClient(5)).toBeGreaterThanOrEqual(Math.max(...lasts) + 5)
  })

  test('read_ts sees what is acknowledged', async () => {
    const store = await open()
    const [startTs, commitTs] = [await store.tso(1), await store.tso(1)]
    await write(store, startTs, commitTs, [put('a', '1')])
    expect(await read(store, 'a', await store.readTs())).toBe('1')
  })

  test('now and ago go by the clock alone, clock by timestamps that ran ahead of it too', async () => {
    const clock = new TestClock()
    const store = await open({ now: clock.now })
    expect(store.now()).toBe(timestampFromMs(START_MS + 1) - 1)
    const ahead = await store.tso(5000)
    expect(store.now()).toBe(timestampFromMs(START_MS + 1) - 1)
    expect(store.time.clock()).toBeGreaterThanOrEqual(ahead)
    expect(store.time.ago(1000)).toBe(timestampFromMs(START_MS - 1000))
    clock.ms += 500
    expect(store.time.ago(1000)).toBe(timestampFromMs(START_MS - 500))
    expect(store.time.steadyMs()).toBe(START_MS + 500)
  })

  needing('onePhaseCommit')(
    'what a client committed above every timestamp handed out is told of, until they have passed it',
    async () => {
      const clock = new TestClock()
      const store = await open({ now: clock.now })
      const keys = ['a', 'b'].map(utf8)
      expect(await store.newestAhead(keys)).toBe(0)
      const startTs = await store.tso(1)
      const future = clock.ts() + 2048 * HOUR_MS
      await write(store, startTs, future, [put('a', '1')])
      expect(await store.newestAhead(keys)).toBe(future)
      expect(await store.newestAhead(keys.slice(1))).toBe(0)
      expect(await store.tso(1)).toBeLessThan(future)
      clock.ms += 2 * HOUR_MS
      await store.tso(1)
      expect(await store.newestAhead(keys)).toBe(0)
    },
  )

  /** A wall clock that jumps an hour, and nobody has asked the time since. */
  async function jumped(prepare: (store: Store, startTs: number) => Promise<unknown>) {
    let wallMs = START_MS
    const store = await open({ now: () => wallMs, monotonicNow: () => 0 })
    const startTs = await store.tso(1)
    await prepare(store, startTs)
    const inFuture = (await store.tso(1)) + 2 * HOUR_MS * 2048
    wallMs += HOUR_MS
    return { store, startTs, inFuture }
  }

  needing('clockJumps')('a jump of the clock that a cleanup is the first to notice makes no lock older', async () => {
    const { store, startTs, inFuture } = await jumped((store, ts) => store.prewrite(prewriteOf(ts, [put('a')])))
    expect(await codeOf(store.cleanup({ key: utf8('a'), startTs, currentTs: inFuture }))).toBe('key_locked')
  })

  needing('clockJumps')('nor one that a prewrite is the first to notice', async () => {
    const { store, startTs, inFuture } = await jumped(async () => {})
    const rest = { useAsyncCommit: true, secondaries: [], minCommitTs: inFuture }
    await store.prewrite(prewriteOf(startTs, [put('a')], rest))
    const { locks } = await store.scanLock({ maxTs: await store.tso(1) })
    expect(locks[0]?.ttl).toBe(HOUR_MS + 3000)
  })

  needing('clockJumps')(
    'a reader who meets a lock, and then asks for the time, sees its age without the jump',
    async () => {
      const { store, startTs } = await jumped((store, ts) => store.prewrite(prewriteOf(ts, [put('a')])))
      const met = await failureOf(store.get({ key: utf8('a'), ts: startTs }))
      expect(met).toMatchObject({ code: 'key_locked', fields: { lock: { ttl: HOUR_MS + 3000 } } })
    },
  )
}
