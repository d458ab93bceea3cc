import * as flexible from 'rate-limiter-flexible'
import { describe, expect, test } from 'vitest'
import { type Db, physicalMs } from '../../src/client/index.js'
import { flexibleRateLimiter } from '../../src/rate-limit/index.js'
import { BACKENDS, testDbs } from '../client/backends.js'

const { RateLimiterMemory, RateLimiterRes } = flexible

describe.each(BACKENDS.slice(0, 2))('rate-limiter-flexible, $backend', ({ openDb }) => {
  const open = testDbs(openDb)
  const limiter = (db: Db, options: flexible.IRateLimiterOptions) =>
    flexibleRateLimiter(flexible, { storeClient: db, ...options })
  const outcome = (call: Promise<unknown>): Promise<unknown> => call.catch((refused: unknown) => refused)

  test('of many hits at the same time from two clients as many pass as may', async () => {
    const { db, another } = await open()
    const two = [limiter(db, { points: 9, duration: 60 }), limiter(await another(), { points: 9, duration: 60 })]
    const hits = Array.from({ length: 20 }, (_, i) => two[i % 2]?.consume('ann'))
    const settled = await Promise.allSettled(hits)
    expect(settled.filter(({ status }) => status === 'fulfilled')).toHaveLength(9)
    const reasons = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
    for (const reason of reasons) expect(reason).toBeInstanceOf(RateLimiterRes)
    expect(await two[0]?.get('ann')).toMatchObject({ consumedPoints: 20, remainingPoints: 0 })
  })

  test('counts points, and says how long the window lasts', async () => {
    const { db } = await open()
    const one = limiter(db, { points: 5, duration: 60, keyPrefix: 'login' })
    expect(await one.get('ann')).toBeNull()
    const first = await one.consume('ann', 2)
    expect(first).toMatchObject({
      consumedPoints: 2,
      remainingPoints: 3,
      isFirstInDuration: true,
      msBeforeNext: 60_000,
    })
    const second = await one.consume('ann', 3)
    expect(second).toMatchObject({ consumedPoints: 5, remainingPoints: 0, isFirstInDuration: false })
    expect(second.msBeforeNext).toBeLessThanOrEqual(60_000)
    expect(await one.reward('ann', 2)).toMatchObject({ consumedPoints: 3 })
    expect(await one.penalty('ann', 1)).toMatchObject({ consumedPoints: 4 })
    expect(await one.set('ann', 1, 30)).toMatchObject({ consumedPoints: 1 })
    expect((await one.get('ann'))?.msBeforeNext).toBeLessThanOrEqual(30_000)
    expect(await db.get('login:ann')).toBe('1')
    expect(await one.delete('ann')).toBe(true)
    expect(await one.delete('ann')).toBe(false)
  })

  test('a window ends by itself', async () => {
    const { db } = await open()
    const one = limiter(db, { points: 1, duration: 0.2 })
    await one.consume('ann')
    await expect.poll(() => one.get('ann')).toBeNull()
    expect(await one.consume('ann')).toMatchObject({ consumedPoints: 1 })
  })

  test('a block lasts as long as it was given, also for one who spends too much', async () => {
    const { db } = await open()
    const one = limiter(db, { points: 1, duration: 1, blockDuration: 600 })
    await one.consume('ann')
    expect(await outcome(one.consume('ann'))).toMatchObject({ msBeforeNext: 600_000 })
    const { expireTs = 0, commitTs = 0 } = (await db.getVersion('rlflx:ann')) ?? {}
    expect(physicalMs(expireTs) - physicalMs(commitTs)).toBeGreaterThan(500_000)
    await one.block('bob', 60)
    expect(await outcome(one.consume('bob'))).toMatchObject({ consumedPoints: 3, remainingPoints: 0 })
  })

  test('a window without an end', async () => {
    const { db } = await open()
    const one = limiter(db, { points: 1, duration: 0 })
    expect(await one.consume('ann')).toMatchObject({ msBeforeNext: -1 })
    expect(await outcome(one.consume('ann'))).toMatchObject({ msBeforeNext: -1, consumedPoints: 2 })
  })

  test('an error of PerKV rejects, or the insurance takes over', async () => {
    const { db } = await open()
    await db.put('rlflx:ann', 'no number')
    await expect(limiter(db, { points: 1, duration: 60 }).consume('ann')).rejects.toBeInstanceOf(Error)
    const insuranceLimiter = new RateLimiterMemory({ points: 1, duration: 60 })
    expect(await limiter(db, { points: 1, duration: 60, insuranceLimiter }).consume('ann')).toMatchObject({
      consumedPoints: 1,
    })
  })
})
