import { expect } from 'vitest'
import type { StoredNotification } from '../../../src/observers/rules/cell.js'
import type { PrewriteMutation, PrewriteRequest } from '../../../src/percolator/api.js'
import type { ExpiryChange } from '../../../src/percolator/change.js'
import type { CompleteStore, Store } from '../../../src/store/store.js'
import type { SystemWrite } from '../../../src/store/system-records.js'
import { LOGICAL_PER_MS, type Timestamp } from '../../../src/timestamp.js'
import { del, failureOf, prewriteOf, put, text, utf8, write } from '../support.js'
import { changesOf, type ReadChange } from './change-readings.js'
import { LONG, versionsOf } from './contents.js'
import type { Contract } from './contract.js'

const MINUTE = 60_000 * LOGICAL_PER_MS
const OBSERVER = { name: 'words', range: { start: utf8('doc/'), end: utf8('doc0') }, maxDepth: 64 }
const CURSOR: SystemWrite = { name: 'expiry/cursor', value: utf8('here') }

/** Versions that expire, as readers of changes and observers see them. */
export function expiredVersionCases(contract: Contract): void {
  const { open, test, needing } = contract

  const expiring = (key: string, expireTs: Timestamp, value: string | Uint8Array = 'v'): PrewriteMutation => ({
    ...put(key, value),
    expireTs,
  })
  const expiry = (key: string, expireTs: Timestamp, ts = expireTs): ReadChange => ({
    type: 'expire',
    key,
    commitTs: ts,
    startTs: ts,
    expireTs,
  })

  async function expiriesOf(store: CompleteStore, upTo: Timestamp, since = 0): Promise<ReadChange[]> {
    await store.tso(1)
    store.log.resolve()
    const read = await changesOf(store, { since, upTo })
    const found: ExpiryChange[] = []
    for await (const page of store.log.expiries(since, upTo)) found.push(...page)
    const expired = read.filter(({ type }) => type === 'expire')
    expect(found.map(({ key, expireTs, commitTs }) => expiry(text(key), expireTs, commitTs))).toEqual(expired)
    return expired
  }

  test('a version expires at its expire_ts where it is the newest by then', async () => {
    const store = await open()
    await write(store, 5, 6, [expiring('kept', 20), expiring('replaced', 20), expiring('deleted', 20), put('plain')])
    await write(store, 7, 8, [expiring('longer', 20), expiring('late', 20, LONG)])
    await write(store, 10, 19, [put('replaced'), del('deleted'), expiring('longer', 30)])
    await write(store, 21, 25, [put('late')])
    await write(store, 10, 20, [put('at once')])
    expect(await expiriesOf(store, 40)).toEqual([expiry('kept', 20), expiry('late', 20), expiry('longer', 30)])
    expect(await expiriesOf(store, 20)).toEqual([expiry('kept', 20), expiry('late', 20)])
    expect(await expiriesOf(store, 29, 20)).toEqual([])
    expect(await expiriesOf(store, 19)).toEqual([])
  })

  test('commits come before the expiries of their timestamp; a put at it keeps its key', async () => {
    const store = await open()
    await write(store, 5, 6, [expiring('a', 20), expiring('b', 20), expiring('c', 20)])
    await write(store, 7, 20, [put('b'), put('d')])
    expect((await changesOf(store, { since: 6, upTo: 30 })).map(({ type, key }) => `${type} ${key}`)).toEqual([
      'put b',
      'put d',
      'expire a',
      'expire c',
    ])
  })

  test('a version that had expired when it was committed expires at its commit_ts', async () => {
    const store = await open()
    await write(store, 5, 6, [put('a', 'before')])
    await write(store, 10, 30, [expiring('a', 20)])
    expect((await changesOf(store, { since: 6, upTo: 40 })).map(({ type, commitTs }) => [type, commitTs])).toEqual([
      ['put', 30],
      ['expire', 30],
    ])
    expect(await expiriesOf(store, 40)).toEqual([expiry('a', 20, 30)])
  })

  test('two versions of a key that would expire together', async () => {
    const store = await open()
    await write(store, 5, 6, [expiring('a', 20)])
    await write(store, 7, 8, [expiring('a', 20)])
    await write(store, 9, 10, [expiring('b', 15)])
    await write(store, 16, 17, [expiring('b', 20)])
    expect(await expiriesOf(store, 40)).toEqual([expiry('b', 15), expiry('a', 20), expiry('b', 20)])
  })

  test('puts come with their expire_ts, and a reading keeps to its ranges', async () => {
    const store = await open()
    await write(store, 5, 6, [expiring('a', 20), expiring('b', 20, LONG), put('c')])
    const ranges = [{ start: utf8('b'), end: utf8('d') }]
    const whole = await changesOf(store, { since: 0, upTo: 20, ranges })
    expect(whole.map(({ type, key, expireTs }) => [type, key, expireTs])).toEqual([
      ['put', 'b', 20],
      ['put', 'c', undefined],
      ['expire', 'b', 20],
    ])
  })

  test('a thousand keys that expire together, between commits', async () => {
    const store = await open()
    const keys = Array.from({ length: 1000 }, (_, i) => `k${String(i).padStart(4, '0')}`)
    await write(
      store,
      5,
      6,
      keys.map((key) => expiring(key, 50)),
    )
    for (let ts = 40; ts < 60; ts++) await write(store, ts - 1, ts, [put(`other ${ts}`)])
    const found = await changesOf(store, { since: 30, upTo: 60 })
    const at = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => `other ${from + i}`)
    expect(found.map(({ key }) => key)).toEqual([...at(40, 51), ...keys, ...at(51, 60)])
    expect(await expiriesOf(store, 60)).toHaveLength(1000)
  })

  test('what a delete_range took does not expire', async () => {
    const store = await open()
    await write(store, 5, 6, [expiring('a', 20), expiring('b', 20)])
    await store.deleteRange({ start: utf8('a'), end: utf8('b') })
    expect(await expiriesOf(store, 40)).toEqual([expiry('b', 20)])
  })

  test('where nothing expires the store says so', async () => {
    const store = await open()
    expect(store.log.mayExpire(0, 100)).toBe(false)
    await write(store, 5, 6, [put('a')])
    expect(store.log.mayExpire(0, 100)).toBe(false)
    await write(store, 7, 8, [expiring('a', 50)])
    expect(store.log.mayExpire(0, 49)).toBe(false)
    expect(store.log.mayExpire(0, 50)).toBe(true)
    await expiriesOf(store, 60)
    expect(store.log.mayExpire(60, 100)).toBe(false)
    // Another reader, which has not come so far, does not change that.
    await expiriesOf(store, 55)
    expect(store.log.mayExpire(50, 100)).toBe(false)
    const now = await store.tso(1)
    await write(store, now, now + 1, [expiring('b', now + 9)])
    expect(store.log.mayExpire(60, now + 8)).toBe(false)
    expect(store.log.mayExpire(60, now + 9)).toBe(true)
  })

  needing('places')('versions expire after a restart', async () => {
    const place = await contract.place()
    const first = await open({ place })
    await write(first, 5, 6, [expiring('a', 20), expiring('b', 30)])
    await first.close()
    const again = await open({ place })
    expect(again.log.mayExpire(0, 19)).toBe(false)
    expect(await expiriesOf(again, 25)).toEqual([expiry('a', 20)])
    expect(await expiriesOf(again, 35, 25)).toEqual([expiry('b', 30)])
  })

  // ---- Collection

  test('whoever has not seen a version expire that is collected is sent to read, and is refused there', async () => {
    const store = await open()
    await write(store, 5, 6, [expiring('a', 20)])
    await store.tso(1)
    store.log.resolve()
    await store.upkeep.collect(30)
    expect(store.log.mayExpire(10, 25)).toBe(true)
    await expect(store.log.expiries(10, 25).next()).rejects.toMatchObject({ code: 'ts_below_safe_point' })
  })

  test('a collection removes what has expired, also when nothing was written since the last one', async () => {
    const store = await open()
    const now = await store.tso(1)
    await write(store, now - 9, now - 8, [expiring('a', now + 10), expiring('b', now + 20, LONG), put('c')])
    expect(await store.upkeep.collect(now)).toBe(0)
    expect(await store.upkeep.collect(now + 10)).toBe(1)
    expect(await versionsOf(store, 'a')).toEqual([])
    expect(await store.upkeep.collect(now + 19)).toBe(0)
    expect(await store.upkeep.collect(now + 20)).toBe(1)
    expect((await store.mvccGetByKey({ key: utf8('b') })).values).toEqual([])
    expect(await versionsOf(store, 'c')).toEqual([now - 8])
  })

  test('a collection leaves what expires above the safe point, also where the version was replaced by then', async () => {
    const store = await open()
    await write(store, 5, 6, [expiring('a', 30), expiring('b', 30), expiring('c', 30), expiring('d', 10)])
    await write(store, 35, 36, [put('b')])
    await write(store, 7, 8, [put('c')])
    await store.upkeep.collect(20)
    expect(await expiriesOf(store, 40, 20)).toEqual([expiry('a', 30), expiry('b', 30)])
    expect(await failureOf(changesOf(store, { since: 19, upTo: 40 }))).toMatchObject({ code: 'ts_below_safe_point' })
    const reading = store.log.expiries(19, 40)
    expect(await failureOf(reading.next())).toMatchObject({ code: 'ts_below_safe_point' })
    const left = store.log.expiries(0, 40, { isLenient: true, isWanted: (key) => text(key) !== 'b' })
    expect((await left.next()).value?.map(({ key }) => text(key))).toEqual(['a'])
  })

  // ---- Observers

  async function observed() {
    const store = await open()
    const id = await store.tso(1)
    store.observed.register({ ...OBSERVER, id })
    const commitTs = await commitNow(store, [expiring('doc/1', id + MINUTE), expiring('other', id + MINUTE)])
    return { store, id, commitTs, at: id + MINUTE }
  }

  async function commitNow(store: Store, mutations: readonly PrewriteMutation[], rest: Partial<PrewriteRequest> = {}) {
    const startTs = await store.tso(1)
    const answer = await store.prewrite(prewriteOf(startTs, mutations, { tryOnePc: true, linearizable: true, ...rest }))
    return answer.onePcCommitTs ?? 0
  }

  const expired = (key: string, ts: Timestamp): ExpiryChange => ({
    type: 'expire',
    key: utf8(key),
    commitTs: ts,
    startTs: ts,
    expireTs: ts,
    version: { commitTs: 1, startTs: 0 },
  })

  async function entryOf(store: CompleteStore, id: Timestamp, key: string): Promise<StoredNotification | undefined> {
    return (await store.cells.read(id, [utf8(key)]))[0]?.notification
  }

  const run = (store: Store, fence: Timestamp, key = 'doc/1', rest: Partial<PrewriteRequest> = {}) =>
    commitNow(store, [], {
      commitEffects: { acks: [{ observer: 'words', key: utf8(key), fence }], seesFence: true },
      ...rest,
    })

  needing('onePhaseCommit')('an expiry marks the cells of the key, with what is written beside', async () => {
    const { store, id, at } = await observed()
    const other = await store.tso(1)
    store.observed.register({ ...OBSERVER, name: 'more', id: other })
    expect(store.observed.oldest).toBe(id)
    await store.cells.markExpired([expired('doc/1', at), expired('other', at)], [CURSOR])
    expect(await entryOf(store, id, 'doc/1')).toEqual({ changeTs: at, kind: 'expired', depth: 0 })
    expect(await entryOf(store, other, 'doc/1')).toEqual({ changeTs: at, kind: 'expired', depth: 0 })
    expect(await entryOf(store, id, 'other')).toBeUndefined()
    expect(await store.system.get('expiry/cursor')).toEqual(CURSOR.value)
  })

  needing('onePhaseCommit')('what expired before an observer was registered marks nothing for it', async () => {
    const { store, id } = await observed()
    await run(store, await store.tso(1))
    await store.cells.markExpired([expired('doc/1', id)], [CURSOR])
    expect(await entryOf(store, id, 'doc/1')).toBeUndefined()
    expect(await store.system.get('expiry/cursor')).toEqual(CURSOR.value)
  })

  needing('onePhaseCommit')('a mark hides no newer one, and is not made for what a run has seen', async () => {
    const { store, id } = await observed()
    const between = await store.tso(1)
    const newer = await commitNow(store, [put('doc/1')])
    await store.cells.markExpired([expired('doc/1', between)], [])
    expect(await entryOf(store, id, 'doc/1')).toEqual({ changeTs: newer, kind: 'put', depth: 0 })
    const fence = await store.tso(1)
    await run(store, fence)
    await store.cells.markExpired([expired('doc/1', fence)], [])
    expect(await entryOf(store, id, 'doc/1')).toBeUndefined()
    await store.cells.markExpired([expired('doc/1', fence + 1)], [])
    expect((await entryOf(store, id, 'doc/1'))?.changeTs).toBe(fence + 1)
  })

  needing('onePhaseCommit')('a mark that is made again after its acknowledgement is none', async () => {
    const { store, id } = await observed()
    await run(store, await store.tso(1))
    const at = await store.tso(1)
    await store.cells.markExpired([expired('doc/1', at)], [])
    await run(store, await store.tso(1))
    await store.cells.markExpired([expired('doc/1', at)], [])
    expect(await entryOf(store, id, 'doc/1')).toBeUndefined()
  })

  needing('onePhaseCommit')('a key that expired and is written without pause is acknowledged run by run', async () => {
    const store = await open()
    const id = await store.tso(1)
    store.observed.register({ ...OBSERVER, id })
    let expireTs: Timestamp
    let first: Timestamp
    // The clock's next millisecond may begin in between. Then the version has expired when it is committed, and another is tried.
    do {
      expireTs = (await store.tso(1)) + 100
      first = await commitNow(store, [expiring('doc/1', expireTs)])
    } while (first >= expireTs)
    await run(store, first)
    while ((await store.tso(20)) < expireTs);
    const seen = await store.tso(1)
    const newer = await commitNow(store, [put('doc/1')])
    // The notification is newer than what the run has seen, which is the expiry: nobody has covered it.
    await run(store, seen)
    expect(await entryOf(store, id, 'doc/1')).toEqual({ changeTs: newer, kind: 'put', depth: 0 })
    expect(await failureOf(run(store, seen))).toMatchObject({ code: 'write_conflict' })
  })

  needing('onePhaseCommit')('more marks than one batch takes', async () => {
    const { store, id, at } = await observed()
    const keys = Array.from({ length: 1200 }, (_, i) => `doc/${i}`)
    await store.cells.markExpired(
      keys.map((key) => expired(key, at)),
      [CURSOR],
    )
    const entries = await store.cells.notifications(id, { after: undefined, limit: 2000 })
    expect(entries.filter(({ notification }) => notification.kind === 'expired')).toHaveLength(1200)
  })
}
