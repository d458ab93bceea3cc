import { expect, test } from 'vitest'
import type { Database } from '../../../src/database/database.js'
import { sleep } from '../../../src/event-loop/sleep.js'
import { ackKey, encodeAckTs } from '../../../src/observers/rules/codec/cell-key.js'
import type { Notification, Registration } from '../../../src/observers/rules/observers-api.js'
import type { HintedCells } from '../../../src/store/hinted-cells.js'
import type { Timestamp } from '../../../src/timestamp.js'
import type { Op } from '../../../src/txn/op.js'
import { prewriteOf, put, text, utf8 } from '../support.js'
import { type Fate, MemoryTable } from './memory-table.js'
import { openTableStore } from './open-table-store.js'
import { inLeaps, severalDatabases } from './several-databases.js'

const SERVER_ROWS = { start: Buffer.from('\0\0'), end: Buffer.from('\0\x01') }

interface Two {
  readonly table: MemoryTable
  readonly one: Database
  readonly other: Database
}

/** Two servers, of which the first has registered the observer. */
function withTwo(body: (two: Two) => Promise<void>, registration: Partial<Registration> = {}): Promise<void> {
  const table = new MemoryTable(
    () => 'done',
    () => 1,
    () => 1,
  )
  return inLeaps(table, async () => {
    const [one, other] = (await severalDatabases(table, 2)) as [Database, Database]
    await one.observers.put('words', { range: { prefix: utf8('doc/') }, ...registration })
    await body({ table, one, other })
    await one.close()
    await other.close()
  })
}

async function transact(database: Database, ...ops: readonly Op[]): Promise<Timestamp> {
  const { answer } = await database.transact({ checks: [], ops, maxRetries: 9, lockWaitMs: 1000 })
  return answer.commitTs ?? 0
}

const putOf = (key: string): Op => ({ op: 'put', key: utf8(key), value: utf8('v') })

async function claim(database: Database, limit = 10): Promise<Notification[]> {
  const claimed = await database.observers.claim('words', { worker: 'w', limit, waitMs: 1000, values: true })
  return claimed.sort((a, b) => Buffer.compare(a.key, b.key))
}

async function ack(database: Database, ...claims: readonly Notification[]): Promise<Timestamp> {
  const acks = claims.map(({ key, fence }) => ({ observer: 'words', key, fence }))
  const { answer } = await database.transact({
    checks: [],
    ops: [],
    commitEffects: { acks },
    maxRetries: 9,
    lockWaitMs: 1000,
  })
  return answer.commitTs ?? 0
}

const cellsOf = ({ store: { cells } }: Database): HintedCells => (cells.isShared ? cells : expect.fail())

const keysOf = (claims: readonly Notification[]): string[] => claims.map(({ key }) => text(key))

/** No hint is left, wherever one looks. */
async function expectAtRest({ one, other }: Two): Promise<void> {
  for (const { observers } of [one, other])
    for (let tries = 0; ; tries++) {
      if ((await observers.get('words')).pending === 0) break
      expect(tries).toBeLessThan(50)
      expect(await observers.claim('words', { worker: 'w' })).toEqual([])
      await sleep(20)
    }
}

test('a server that has read the registrations long ago hints at what it commits', () =>
  withTwo(async ({ one, other }) => {
    await sleep(60_000)
    const commitTs = await transact(other, putOf('doc/1'))
    expect(await claim(one)).toMatchObject([{ commitTs, kind: 'put', attempt: 1, found: true }])
  }))

test('a transaction that has locked before the registration and commits after it is hinted at', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const [one, other] = (await severalDatabases(table, 2)) as [Database, Database]
    const startTs = await other.store.tso(1)
    const keys = ['doc/1', 'doc/2']
    const mutations = keys.map((key) => put(key))
    await other.store.prewrite({ ...prewriteOf(startTs, mutations), lockTtl: 60_000 })
    await one.observers.put('words', { range: { prefix: utf8('doc/') } })
    const commitTs = await other.store.tso(1)
    await other.store.commit({ keys: keys.map(utf8), startTs, commitTs })
    expect(await claim(one)).toMatchObject(keys.map((key) => ({ key: utf8(key), commitTs })))
    await one.close()
    await other.close()
  })
})

test('a commit that is cut off after its primary is found by its hints, and finished', () =>
  withTwo(async ({ one, other }) => {
    const startTs = await other.store.tso(1)
    const mutations = ['doc/1', 'doc/2', 'doc/3'].map((key) => put(key))
    await other.store.prewrite(prewriteOf(startTs, mutations))
    const commitTs = await other.store.tso(1)
    await other.store.commit({ keys: [utf8('doc/1')], startTs, commitTs })
    expect(keysOf(await claim(one))).toEqual(['doc/1', 'doc/2', 'doc/3'])
  }))

test('a transaction that is rolled back leaves a hint, and nobody a run', () =>
  withTwo(async (two) => {
    const { one, other } = two
    const startTs = await other.store.tso(1)
    await other.store.prewrite(prewriteOf(startTs, [put('doc/1')]))
    expect((await one.observers.get('words')).pending).toBe(1)
    expect(await one.observers.claim('words', { worker: 'w' })).toEqual([]) // The lock stands.
    expect((await one.observers.get('words')).pending).toBe(1)
    await other.store.rollback({ keys: [utf8('doc/1')], startTs })
    await expectAtRest(two)
  }))

test('a hint that was renewed since it was read stays, whatever the look has found', () =>
  withTwo(async ({ one, other }) => {
    const cells = cellsOf(one)
    const id = one.store.observed.named('words')?.id ?? 0
    const startTs = await other.store.tso(1)
    await other.store.prewrite(prewriteOf(startTs, [put('doc/1')]))
    await other.store.rollback({ keys: [utf8('doc/1')], startTs })
    const [hinted] = await cells.hinted(id, { after: undefined, limit: 1 })
    expect(hinted?.hint).toBeDefined()
    await transact(other, putOf('doc/1'))
    if (hinted !== undefined) await cells.forget(id, hinted)
    expect(keysOf(await claim(one))).toEqual(['doc/1'])
  }))

test('a late copy of an older hint does not land over a newer one', async () => {
  const fates: Fate[] = []
  const table = new MemoryTable(() => fates.shift() ?? 'done')
  const { cells } = await openTableStore(table)
  const key = utf8('doc/1')
  const page = { after: undefined, limit: 1 }
  for (const before of ['none', 'another']) {
    fates.push('late')
    await cells.hint(7, key, { commitTs: 1, depth: 0 })
    expect(table.late, before).toHaveLength(1)
    const [older] = await cells.hinted(7, page)
    await cells.hint(7, key, { commitTs: 2, depth: 0 })
    for (const land of table.late.splice(0)) land()
    await cells.forget(7, older ?? expect.fail())
    expect(await cells.hinted(7, page), before).toMatchObject([{ key, hint: { commitTs: 2 } }])
  }
})

test('a hint is written after the lock of its change, and before the prewrite is answered', () =>
  withTwo(async ({ table, other }) => {
    const isLocked: boolean[] = []
    const change = table.change.bind(table)
    table.change = async (key, expected, writes) => {
      const [row] = await table.rows({ keys: [Buffer.from('doc/1')], columns: [{ family: 'l' }] })
      const changed = await change(key, expected, writes)
      if (changed === 'done' && key.includes('notify/')) isLocked.push(row !== undefined)
      return changed
    }
    const startTs = await other.store.tso(1)
    await other.store.prewrite(prewriteOf(startTs, [put('doc/1')]))
    expect(isLocked).toEqual([true])
    // Also by a repeat: the server that has locked the key may have died before it hinted.
    await other.store.prewrite(prewriteOf(startTs, [put('doc/1')]))
    expect(isLocked).toEqual([true, true])
  }))

test('a claim of one server is that of all; its run may commit anywhere, once', () =>
  withTwo(async (two) => {
    const { one, other } = two
    await transact(one, putOf('doc/1'))
    const [claimed] = (await claim(one)) as [Notification]
    expect(await other.observers.claim('words', { worker: 'w' })).toEqual([])
    expect(await other.observers.extend('words', [claimed], 60_000)).toEqual([])
    await ack(other, claimed)
    await expect(ack(one, claimed)).rejects.toMatchObject({
      code: 'write_conflict',
      fields: { reason: 'acknowledged', retryable: false },
    })
    await expectAtRest(two)
  }))

test.each([
  ['alone', (ack: Buffer) => [ack]],
  ['with a primary of its own', (ack: Buffer) => [utf8('bill'), ack]],
])('a run that died in its commit, %s, is ended by those who claim', (_, keysWith) =>
  withTwo(async ({ one, other: { store } }) => {
    await transact(one, putOf('doc/1'))
    const [claimed] = await one.observers.claim('words', { worker: 'w', waitMs: 1000, leaseMs: 1000 })
    const { key, fence } = claimed as Notification
    const ack = ackKey({ id: one.store.observed.named('words')?.id ?? 0, key })
    const mutations = keysWith(ack).map((key) => ({ op: 'put', key, value: encodeAckTs(fence) }) as const)
    await store.prewrite(prewriteOf(await store.tso(1), mutations, { lockTtl: 1000 }))
    const again = await one.observers.claim('words', { worker: 'w', waitMs: 6000 })
    const failed = again.length > 0 ? again : await one.observers.claim('words', { worker: 'w', waitMs: 6000 })
    expect(failed).toMatchObject([{ key, attempt: 2 }])
  }),
)

test('whoever has been followed by another claim is superseded', () =>
  withTwo(async ({ one, other }) => {
    await transact(one, putOf('doc/1'))
    const [first] = (await one.observers.claim('words', { worker: 'w', leaseMs: 100 })) as [Notification]
    await sleep(200)
    await other.observers.claim('words', { worker: 'w' }) // Counts the attempt.
    await sleep(1000)
    const [second] = (await claim(other)) as [Notification]
    expect(second.attempt).toBe(2)
    await expect(ack(one, first)).rejects.toMatchObject({ code: 'write_conflict', fields: { reason: 'superseded' } })
    await ack(one, second)
  }))

test('what a run writes to its own key is no change for it, and hides none', () =>
  withTwo(async (two) => {
    const { one, other } = two
    await transact(one, putOf('doc/1'))
    const [first] = (await claim(one)) as [Notification]
    const missed = await transact(other, putOf('doc/1'))
    const acks = [{ observer: 'words', key: first.key, fence: first.fence }]
    await other.transact({
      checks: [],
      ops: [putOf('doc/1')],
      commitEffects: { acks },
      maxRetries: 9,
      lockWaitMs: 1000,
    })
    const [second] = (await claim(one)) as [Notification]
    expect(second).toMatchObject({ kind: 'put' })
    expect(second.commitTs).toBeGreaterThan(missed)
    await ack(one, second)
    await expectAtRest(two)
  }))

test('what a run writes to its own key hides no change that is committed between its look and its lock', () =>
  withTwo(async (two) => {
    const { table, one, other } = two
    await transact(one, putOf('doc/1'))
    const [first] = (await claim(one)) as [Notification]
    const startTs = await other.store.tso(1)
    await other.store.prewrite(prewriteOf(startTs, [put('doc/1')], { lockTtl: 60_000 }))
    const commitTs = await other.store.tso(1)
    const rows = table.rows.bind(table)
    table.rows = async (request) => {
      const found = await rows(request)
      const isLook = request.keys?.some((key) => text(key) === 'doc/1') && request.ranges !== undefined
      if (!isLook) return found
      table.rows = rows
      await other.store.commit({ keys: [utf8('doc/1')], startTs, commitTs })
      return found
    }
    const acks = [{ observer: 'words', key: first.key, fence: first.fence }]
    await one.transact({ checks: [], ops: [putOf('doc/1')], commitEffects: { acks }, maxRetries: 9, lockWaitMs: 5000 })
    const [second] = (await claim(one)) as [Notification]
    expect(second.commitTs).toBeGreaterThan(commitTs)
    await ack(one, second)
    await expectAtRest(two)
  }))

test('failures are counted by all servers together; a parked cell is retried, or skipped, by any', () =>
  withTwo(
    async (two) => {
      const { one, other } = two
      await transact(one, putOf('doc/1'), putOf('doc/2'))
      const failed = await claim(one)
      expect(
        await other.observers.release(
          'words',
          failed.map((each) => ({ ...each, error: 'no' })),
        ),
      ).toMatchObject({ released: 2, parked: [] })
      await sleep(1000)
      const again = await claim(other)
      expect(again).toMatchObject([{ attempt: 2 }, { attempt: 2 }])
      const { parked } = await one.observers.release(
        'words',
        again.map((each) => ({ ...each, error: 'no' })),
      )
      expect(parked.map(text).sort()).toEqual(['doc/1', 'doc/2'])
      expect((await other.observers.parked('words', { limit: 10 })).parked).toMatchObject([
        { attempts: 2, error: 'no' },
        { attempts: 2 },
      ])
      expect(await other.observers.claim('words', { worker: 'w' })).toEqual([])
      expect(await other.observers.skip('words', [utf8('doc/2')])).toBe(1)
      expect(await one.observers.retry('words')).toBe(1)
      expect(await claim(other)).toMatchObject([{ key: utf8('doc/1'), attempt: 1 }])
    },
    { maxAttempts: 2, backoffMs: 10 },
  ))

/** A run of a notified run notifies doc/3, which is too deep. */
async function notifyTooDeep({ one, other }: Two): Promise<void> {
  await transact(one, putOf('doc/1'))
  const [first] = await claim(one)
  const acks = first === undefined ? [] : [{ observer: 'words', key: first.key, fence: first.fence }]
  const commitEffects = { acks, notify: [{ observer: 'words', keys: [utf8('doc/2')] }] }
  await one.transact({ checks: [], ops: [], commitEffects, maxRetries: 9, lockWaitMs: 1000 })
  const [second] = await claim(other)
  const more = { acks: [{ observer: 'words', key: utf8('doc/2'), fence: second?.fence ?? 0 }] }
  const deeper = { ...more, notify: [{ observer: 'words', keys: [utf8('doc/3')] }] }
  await other.transact({ checks: [], ops: [], commitEffects: deeper, maxRetries: 9, lockWaitMs: 1000 })
}

test('a notification that was parked for its depth is handed out after a retry', () =>
  withTwo(
    async (two) => {
      const { one, other } = two
      await notifyTooDeep(two)
      expect(await claim(one)).toEqual([])
      expect((await one.observers.get('words')).parked).toBe(1)
      expect(await other.observers.retry('words')).toBe(1)
      expect(keysOf(await claim(one))).toEqual(['doc/3'])
    },
    { maxDepth: 1 },
  ))

test('a failure that was written late, of a cell that a run has covered, goes with a retry', () =>
  withTwo(async (two) => {
    const { one, other } = two
    const commitTs = await transact(one, putOf('doc/1'))
    await ack(one, ...(await claim(one)))
    const id = one.store.observed.named('words')?.id ?? 0
    const change = { changeTs: commitTs, kind: 'put', depth: 0 } as const
    const late = { ...change, attempts: 1, error: 'it has failed', parkedTs: commitTs, notBeforeMs: 0 }
    await cellsOf(one).replaceFailure(id, { key: utf8('doc/1'), failure: undefined }, late)
    expect((await other.observers.parked('words', { limit: 10 })).parked).toEqual([])
    expect(await other.observers.retry('words')).toBe(1)
    expect(await other.observers.retry('words')).toBe(0)
    await expectAtRest(two)
  }))

test('what a run has not seen is handed out when it commits, though the cell was parked meanwhile', () =>
  withTwo(
    async (two) => {
      const { one, other } = two
      await transact(one, putOf('doc/1'))
      const [first] = (await one.observers.claim('words', { worker: 'w', leaseMs: 100 })) as [Notification]
      const missed = await transact(other, putOf('doc/1'))
      await sleep(200)
      expect(await claim(other)).toEqual([]) // Counts the attempt.
      expect((await other.observers.get('words')).parked).toBe(1)
      await ack(one, first)
      const second = await claim(other)
      expect(second).toMatchObject([{ key: utf8('doc/1'), commitTs: missed, attempt: 1 }])
      await ack(other, ...second)
      await expectAtRest(two)
    },
    { maxAttempts: 1 },
  ))

test('a prewrite that comes to nothing does not take away the depth of a notification', () =>
  withTwo(
    async (two) => {
      const { store } = two.one
      await notifyTooDeep(two)
      const startTs = await store.tso(1)
      await store.prewrite(prewriteOf(startTs, [put('doc/3')]))
      await store.rollback({ keys: [utf8('doc/3')], startTs })
      expect(await claim(two.one)).toEqual([])
      expect((await two.one.observers.get('words')).parked).toBe(1)
    },
    { maxDepth: 1 },
  ))

test('a notification of an observer that does not take effect yet waits until it does', () =>
  withTwo(async ({ one, other }) => {
    const registered = one.observers.put('late', { range: { prefix: utf8('doc/') } })
    for (;;) {
      const told = await other.observers.notify('late', [utf8('doc/9')]).catch(() => undefined)
      if (told !== undefined) break
      await sleep(1)
    }
    await registered
    const claimed = await one.observers.claim('late', { worker: 'w', waitMs: 1000 })
    expect(claimed).toMatchObject([{ key: utf8('doc/9'), kind: 'notified' }])
  }))

test('a version that expires is a change, told after a run has covered its put', () =>
  withTwo(async (two) => {
    const { one, other } = two
    await transact(one, { op: 'put', key: utf8('doc/1'), value: utf8('v'), expiry: { ttlMs: 5000 } })
    await ack(one, ...(await claim(one)))
    await sleep(1000)
    expect(await other.observers.claim('words', { worker: 'w' })).toEqual([])
    await sleep(5000)
    const expired = await claim(other)
    expect(expired).toMatchObject([{ key: utf8('doc/1'), kind: 'expired', found: false }])
    await ack(one, ...expired)
    await expectAtRest(two)
  }))

test('an expiry that one server leaves for later, while another one hints at it, is hinted at again', () =>
  withTwo(async ({ table, one }) => {
    const cells = cellsOf(one)
    const id = one.store.observed.named('words')?.id ?? 0
    const later = () => cells.hintAt(id, utf8('doc/1'), 10)
    await later()
    const change = table.change.bind(table)
    table.change = async (...hinting) => {
      const changed = await change(...hinting)
      table.change = change
      await later()
      return changed
    }
    expect(await cells.hintDue(id, 10)).toBe(1)
    expect(await cells.hintDue(id, 10)).toBe(1)
    expect(await cells.hintDue(id, 10)).toBe(0)
  }))

test('a backfill notifies every key once, and goes on when its server has died', { tags: ['long'] }, () =>
  withTwo(async ({ table, one, other }) => {
    const keys = Array.from({ length: 300 }, (_, i) => `doc/${String(i).padStart(3, '0')}`)
    for (let from = 0; from < keys.length; from += 100)
      await transact(other, ...keys.slice(from, from + 100).map(putOf))
    for (let left = keys.length; left > 0; ) {
      const some = await claim(other, 100)
      await ack(other, ...some)
      left -= some.length
    }
    const dying = one.observers.backfill('words')
    await one.close()
    await dying.catch(() => {})
    const [third] = (await severalDatabases(table, 1)) as [Database]
    const found = new Set<string>()
    while (found.size < keys.length) {
      await sleep(1000)
      const some = await claim(third, 100)
      for (const { kind, key } of some) {
        expect(kind).toBe('backfill')
        found.add(text(key))
      }
      if (some.length > 0) await ack(third, ...some)
    }
    await third.close()
  }),
)

test('a deleted observer leaves no rows', () =>
  withTwo(async ({ table, one, other }) => {
    await transact(one, putOf('doc/1'), putOf('doc/2'))
    await other.observers.notify('words', [utf8('doc/3')])
    await ack(one, ...(await claim(one, 1)))
    await one.observers.remove('words')
    await expect(other.observers.get('words')).rejects.toMatchObject({ code: 'not_found' })
    await sleep(10_000)
    const rows = await table.rows({ ranges: [SERVER_ROWS], columns: [{ family: 'o' }, { family: 'v' }] })
    expect(
      rows.map(({ key }) => key.toString('latin1')).filter((key) => !/outcome|oracle|secret|server/.test(key)),
    ).toEqual([])
  }))
