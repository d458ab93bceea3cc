import { setImmediate } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import type { Lease } from '../../../src/client/leases/lease.js'
import { BACKENDS, testDbs } from '../backends.js'

const TTL = { ttlMs: 60_000 }

describe.each(BACKENDS)('leases $backend', ({ openDb }) => {
  const open = testDbs(openDb)

  test('one holder at a time, by ascending fences', async () => {
    const { db, another } = await open()
    const other = await another()
    const lease = await db.lease('jobs/leader', TTL)
    expect(lease).toMatchObject({ name: 'jobs/leader', ttlMs: 60_000, holder: expect.stringMatching(/^holder-/) })
    expect(lease.expiresAt.getTime()).toBeGreaterThan(Date.now())
    await expect(other.lease('jobs/leader', TTL)).rejects.toMatchObject({
      code: 'lease_held',
      fields: { lease: 'jobs/leader', holder: lease.holder },
    })
    const waiting = other.lease('jobs/leader', { ...TTL, waitMs: 60_000 })
    await lease.release()
    expect(lease.signal.aborted).toBe(true)
    const next = await waiting
    expect(next.fence).toBeGreaterThan(lease.fence)
    await lease.release() // It takes nothing from the next one.
    expect(await db.leases.get('jobs/leader')).toMatchObject({ holder: next.holder, fence: next.fence })
    await next.release()
    await expect(db.leases.get('jobs/leader')).rejects.toMatchObject({ code: 'not_found' })
  })

  test('the holder who asks again under its name gets the same lease', async () => {
    const { db } = await open()
    const one = await db.lease('leader', { ...TTL, holder: 'a b&c' })
    const two = await db.lease('leader', { ...TTL, holder: 'a b&c' })
    expect(two.fence).toBe(one.fence)
    await two.release()
    expect(await db.leases.list()).toEqual([])
  })

  test('those that are held are listed by their names', async () => {
    const { db } = await open()
    for (const name of ['b/2', 'a', 'b/1']) await db.lease(name, { ...TTL, holder: 'me' })
    expect((await db.leases.list()).map(({ name }) => name)).toEqual(['a', 'b/1', 'b/2'])
    expect(await db.leases.list({ prefix: 'b/' })).toEqual([
      { ...{ name: 'b/1', holder: 'me', ttlMs: 60_000 }, fence: expect.any(Number), expiresAt: expect.any(Date) },
      { ...{ name: 'b/2', holder: 'me', ttlMs: 60_000 }, fence: expect.any(Number), expiresAt: expect.any(Date) },
    ])
  })

  test('a transaction commits while its lease is held', async () => {
    const { db } = await open()
    const lease = await db.lease('leader', TTL)
    await db.transaction((txn) => txn.put('k', '1'), { leases: [lease] })
    expect(await db.transaction((txn) => txn.get('k'), { leases: [lease] })).toBe('1')
    const txn = await db.begin({ leases: [lease], mode: 'pessimistic' })
    await txn.put('k', '2')
    await txn.commit()
    expect(await db.get('k')).toBe('2')
    expect(lease.signal.aborted).toBe(false)
  })

  test('keys that are attached to a lease are deleted with it', async () => {
    const { db } = await open()
    const lease = await db.lease('up', TTL)
    const put = async (
      key: string,
      options: { lease?: string | Lease; ttl?: '1h' },
      mode: 'optimistic' | 'pessimistic',
    ) => db.transaction((txn) => txn.put(key, '1', options), { leases: [lease], mode })
    await put('a', { lease }, 'optimistic')
    await put('b', { lease: 'up', ttl: '1h' }, 'pessimistic')
    await put('c', {}, 'optimistic')
    await db.transaction((txn) => txn.insert('d', '1', { lease }), { leases: [lease] })
    await expect(db.transaction((txn) => txn.put('e', '1', { lease }))).rejects.toMatchObject({
      code: 'invalid_argument',
    })
    // They keep it, without knowing of it.
    await db.transaction((txn) => txn.touch('a', { ttl: '1h' }))
    await db.transaction(async (txn) => void (await txn.increment('b')), { mode: 'pessimistic' })
    await db.transaction((txn) => txn.put('d', '2'))
    expect(await db.count()).toBe(4)
    await lease.release()
    const left: string[] = []
    for await (const { key } of db.scan({ keysOnly: true })) left.push(key)
    expect(left).toEqual(['c', 'd'])
  })

  test.each(['write', 'read'] as const)(
    'a transaction that only %ss is refused after the lease is lost, is not run again, and ends the lease',
    async (does) => {
      const { db, another } = await open()
      const other = await another()
      const lease = await db.lease('leader', { ...TTL, holder: 'a' })
      let runs = 0
      const refused = db.transaction(
        async (txn) => {
          runs++
          // Somebody gives it back under its name, and another holder is granted it.
          await (await other.lease('leader', { ...TTL, holder: 'a' })).release()
          await other.lease('leader', TTL)
          return does === 'write' ? txn.put('k', '1') : txn.get('k')
        },
        { leases: [lease] },
      )
      const error = await refused.catch((error: unknown) => error)
      const { fence } = await other.leases.get('leader')
      expect(error).toMatchObject({
        code: 'precondition_failed',
        fields: { failedChecks: [{ index: 0, lease: 'leader', fence }] },
      })
      expect(runs).toBe(1)
      expect(await db.get('k')).toBeUndefined()
      expect(lease.signal.aborted).toBe(true)
      await expect(db.transaction(() => runs++, { leases: [lease] })).rejects.toBe(lease.signal.reason)
      expect(runs).toBe(1)
    },
  )

  test('a transaction can be held to a lease of which only name and fence are known', async () => {
    const { db } = await open()
    const { name, fence, release } = await db.lease('leader', TTL).then((lease) => ({
      ...{ name: lease.name, fence: lease.fence },
      release: () => lease.release(),
    }))
    await db.transaction((txn) => txn.put('k', '1'), { leases: [{ name, fence }] })
    await release()
    await expect(db.transaction((txn) => txn.put('k', '2'), { leases: [{ name, fence }] })).rejects.toMatchObject({
      code: 'precondition_failed',
    })
    expect(await db.get('k')).toBe('1')
  })

  test('it is renewed for as long as it is held', { tags: ['long'] }, async () => {
    const { db } = await open()
    const lease = await db.lease('leader', { ttlMs: 1500 })
    const { expiresAt } = lease
    while (lease.expiresAt.getTime() === expiresAt.getTime()) {
      await db.transaction((txn) => txn.put('k', '1'), { leases: [lease] })
      await setImmediate() // In memory nothing waits for a disk, and the timers of the renewal have to run.
    }
    expect(lease.signal.aborted).toBe(false)
    expect(lease.expiresAt.getTime()).toBeGreaterThan(expiresAt.getTime())
  })

  test('the end of the database gives leases back, and ends waits', async () => {
    const { db, another } = await open()
    const other = await another()
    const lease = await other.lease('leader', TTL)
    const waiting = other.lease('leader', { ...TTL, waitMs: Number.POSITIVE_INFINITY })
    const ended = expect(waiting).rejects.toThrow('is closed')
    if (other !== db) await other.close()
    await ended
    expect(lease.signal.aborted).toBe(true)
    await expect(other.lease('leader', TTL)).rejects.toThrow('is closed')
  })

  test('a holder that no server takes is refused by it', async () => {
    const { db } = await open()
    await expect(db.lease('a', { ...TTL, holder: 'a\n' })).rejects.toMatchObject({ code: 'invalid_argument' })
  })
})
