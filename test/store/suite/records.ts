import { expect } from 'vitest'
import { keyText } from '../../../src/bytes/key-text.js'
import type { ScanRequest } from '../../../src/percolator/api.js'
import { reservedKey, reservedName } from '../../../src/percolator/codec/reserved-key.js'
import { latchOf, type SystemName, type SystemWrite } from '../../../src/store/system-records.js'
import { codeOf, prewriteOf, put, text, turn, utf8, watch } from '../support.js'
import type { Contract } from './contract.js'

const record = (name: SystemName, value: string): SystemWrite => ({ name, value: utf8(value) })

/** Records of the server itself: beside transactions, by name, and out of reach of those who name keys. */
export function recordCases(contract: Contract): void {
  const { open, test, needing } = contract

  test('a record is there once it is written, is replaced and removed', async () => {
    const { system } = await open()
    const value = async (): Promise<string> => text((await system.get('lease/k')) ?? utf8('absent'))
    expect(await value()).toBe('absent')
    await system.hold(['lease/k'], () => system.write([record('lease/k', 'first')]))
    expect(await value()).toBe('first')
    await system.write([record('lease/k', 'second'), record('pin/k', 'another kind')])
    expect(await value()).toBe('second')
    await system.write([{ name: 'lease/k', value: undefined }])
    expect(await value()).toBe('absent')
  })

  test('who hold one name run one after another', async () => {
    const { system } = await open()
    const order: string[] = []
    const run = (name: string) =>
      system.hold(['lease/k'], async () => {
        order.push(`${name} begins`)
        await turn()
        order.push(`${name} ends`)
      })
    const failing = system.hold(['lease/k'], () => Promise.reject(new Error('on purpose')))
    await Promise.all([run('first'), run('second'), expect(failing).rejects.toThrow('on purpose')])
    expect(order).toEqual(['first begins', 'first ends', 'second begins', 'second ends'])
  })

  test('a claim on a name waits for who holds it, and for nobody who has the key of that text', async () => {
    const store = await open()
    let release = (): void => {}
    const held = store.system.hold(['pin/a'], () => new Promise<void>((done) => (release = done)))
    const latchSet = { written: [keyText(utf8('b')), latchOf('pin/a')], read: [], isAlone: false }
    const claimed = watch(store.exclusive(latchSet, async () => {}))
    for (const key of ['pin/a', 'lease/a']) await store.prewrite(prewriteOf(await store.tso(1), [put(key)]))
    await turn()
    expect(claimed.isSettled()).toBe(false)
    release()
    await Promise.all([held, claimed.promise])
  })

  test('claims that share a name run together, and keep others from it', async () => {
    const store = await open()
    const shared = { written: [], read: [latchOf('pin/a')], isAlone: false }
    const releases: (() => void)[] = []
    const readers = [1, 2].map(() => store.exclusive(shared, () => new Promise<void>((done) => releases.push(done))))
    await turn()
    expect(releases).toHaveLength(2)
    const changed = watch(store.system.hold(['pin/a'], async () => {}))
    await turn()
    expect(changed.isSettled()).toBe(false)
    for (const release of releases) release()
    await Promise.all([...readers, changed.promise])
  })

  test('reserved rows are read by ranges of their own, and none needs its value', async () => {
    const store = await open()
    const row = (name: string): Uint8Array => reservedKey(utf8(name))
    const startTs = await store.tso(1)
    const keys = [row('a/1'), row('a/2'), row('b/1'), utf8('z')]
    const long = utf8('long'.repeat(2000))
    await store.prewrite(
      prewriteOf(
        startTs,
        keys.map((key) => ({ op: 'put', key, value: long })),
      ),
    )
    await store.commit({ keys, startTs, commitTs: await store.tso(1) })
    const range = { start: row('a/'), end: row('a0'), limit: 10, isOfServer: true, keyOnly: true }
    const scanned = async (rest: object = {}) => {
      const { pairs } = await store.scan({ ...range, ts: await store.tso(1), ...rest })
      return pairs.map(({ key, value }) => [text(reservedName(key)), value])
    }
    expect(await scanned()).toEqual([
      ['a/1', undefined],
      ['a/2', undefined],
    ])
    expect(await scanned({ limit: 1 })).toEqual([['a/1', undefined]])
    expect((await store.scan({ limit: 10, ts: await store.tso(1), keyOnly: true })).pairs).toHaveLength(1)
    // @ts-expect-error An open range would be one of users.
    const endless: ScanRequest = { ...range, end: undefined, isOfServer: true, ts: 1 }
    expect(endless.end).toBeUndefined()
    const found = await store.batchGet({ keys: [...keys, utf8('absent')], ts: await store.tso(1), keyOnly: true })
    expect(found.pairs.map(({ value }) => value)).toEqual([undefined, undefined, undefined, undefined])
    // A lock stands in the way of the one range alone.
    const lockTs = await store.tso(1)
    await store.prewrite(prewriteOf(lockTs, [{ op: 'put', key: row('a/2'), value: long }], { primary: row('a/0') }))
    expect(await codeOf(scanned())).toBe('key_locked')
    expect(await scanned({ start: row('b/'), end: row('b0') })).toEqual([['b/1', undefined]])
    expect((await store.scan({ limit: 10, ts: await store.tso(1), keyOnly: true })).pairs).toHaveLength(1)
    await store.rollback({ keys: [row('a/2')], startTs: lockTs })
  })

  test('reserved rows that are over are swept away with all versions; the size of the others is answered', async () => {
    const store = await open()
    const key = (i: number): Uint8Array => reservedKey(utf8(`outcome/key ${i}`))
    const put = async (of: Uint8Array, value: string) => {
      const startTs = await store.tso(1)
      await store.prewrite(prewriteOf(startTs, [{ op: 'put', key: of, value: utf8(value) }], { primary: of }))
      await store.commit({ keys: [of], startTs, commitTs: await store.tso(1) })
    }
    const long = 'new!'.repeat(2000)
    for (let i = 0; i < 20; i++) await put(key(i % 10), i < 10 ? 'older' : i % 2 === 0 ? 'old' : long)
    await put(reservedKey(utf8('outcomes')), 'old')
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [{ op: 'put', key: key(2), value: utf8('x') }], { primary: key(2) }))
    const left = await store.sweepRows(reservedKey(utf8('outcome/')), (value) => text(value) === 'old')
    expect(left).toBe(5 * ('key 0'.length + long.length))
    await store.rollback({ keys: [key(2)], startTs })
    const ts = await store.tso(1)
    const found = async (of: Uint8Array): Promise<boolean> => (await store.get({ key: of, ts })).found
    const all = await Promise.all([key(0), key(1), key(2), reservedKey(utf8('outcomes'))].map(found))
    expect(all).toEqual([false, true, true, true])
    expect(await store.mvccGetByKey({ key: key(0) })).toEqual({ lock: null, writes: [], values: [] })
  })

  test('reserved rows are out of reach of those who name ranges', async () => {
    const store = await open()
    const [key, end] = [reservedKey(utf8('outcome/a')), Buffer.from('010203', 'hex')]
    const users = [Buffer.from('00', 'hex'), Buffer.from('000070', 'hex'), Buffer.from('0000ff', 'hex'), utf8('a')]
    const startTs = await store.tso(1)
    const mutations = [...users, key].map((one) => ({ op: 'put', key: one, value: one }) as const)
    await store.prewrite(prewriteOf(startTs, mutations, { primary: utf8('a') }))
    const pairs = async (range: object) =>
      (await store.scan({ ...range, ts: await store.tso(1), limit: 10 })).pairs.map((pair) => Buffer.from(pair.key))
    const { locks } = await store.scanLock({ maxTs: 2 ** 53 - 1 })
    expect(locks.map((lock) => Buffer.from(lock.key))).toEqual(users)
    expect((await store.scanLock({ maxTs: 2 ** 53 - 1, withReserved: true })).locks).toHaveLength(5)
    await store.commit({ keys: [...users, key], startTs, commitTs: await store.tso(1) })
    expect(await pairs({})).toEqual(users)
    expect(await pairs({ reverse: true })).toEqual([...users].reverse())
    expect(await pairs({ start: Buffer.from('0000', 'hex'), end })).toEqual(users.slice(1, 3))
    expect(await pairs({ start: reservedKey(utf8('')), end })).toEqual([users[2]])
    await store.deleteRange({ start: Buffer.of(0), end: Buffer.alloc(10, 0xff) })
    expect(await pairs({})).toEqual([])
    expect((await store.get({ key, ts: await store.tso(1) })).found).toBe(true)
  })

  test('records are listed by the beginning of their names, with any bytes in them', async () => {
    const { system } = await open()
    const names = ['lease/', 'lease/\x00', 'lease/a', 'lease/\xff\xff'] as const
    await system.write([...names].reverse().map((name) => record(name, `of ${name}`)))
    await system.write([record('pin/a', '')])
    const list = async (prefix: SystemName) =>
      [...(await system.list(prefix))].map(([name, value]) => [name, text(value)])
    expect(await list('lease/')).toEqual(names.map((name) => [name, `of ${name}`]))
    expect(await list('lease/\xff\xff')).toEqual([['lease/\xff\xff', 'of lease/\xff\xff']])
    expect(await list('pin/')).toEqual([['pin/a', '']])
  })

  test('a record is replaced only if it is as expected', async () => {
    const { system } = await open()
    const replace = (expected: string | undefined, value: string | undefined): Promise<boolean> => {
      const bytes = (given: string | undefined) => (given === undefined ? undefined : utf8(given))
      return system.hold(['lease/k'], () => system.replace('lease/k', bytes(expected), bytes(value)))
    }
    expect(await replace('another', '1')).toBe(false)
    expect(await replace(undefined, '1')).toBe(true)
    expect(await replace(undefined, '2')).toBe(false)
    expect(await replace('1', '2')).toBe(true)
    expect(await replace('1', undefined)).toBe(false)
    expect(text((await system.get('lease/k')) ?? utf8('absent'))).toBe('2')
    expect(await replace('2', undefined)).toBe(true)
    expect(await system.get('lease/k')).toBeUndefined()
  })

  test('many records are read by their names, and all of them in pages', async () => {
    const { system } = await open()
    const names = Array.from({ length: 300 }, (_, i): SystemName => `lease/${String(i).padStart(3, '0')}`)
    await system.write([...names.map((name) => record(name, name)), record('pin/a', '')])
    const asked = [...names.slice(0, 280), 'lease/absent', 'pin/a'] as const
    const read = await system.many(asked)
    expect(read.map((value) => value && text(value))).toEqual([...names.slice(0, 280), undefined, ''])
    const paged = async (prefix: SystemName, after?: SystemName): Promise<string[]> => {
      const found: string[] = []
      for await (const page of system.pages(prefix, after)) found.push(...page.map(([name]) => name))
      return found
    }
    expect(await paged('lease/')).toEqual(names)
    expect(await paged('lease/', 'lease/250')).toEqual(names.slice(251))
    expect(await paged('lease/29', 'lease/1')).toEqual(names.slice(290))
    expect(await paged('pin/', 'pin/a')).toEqual([])
  })

  test('names are no keys: nothing that clients read or delete reaches their records', async () => {
    const store = await open()
    const names = ['lease/k', 'pin/a'] as const
    await store.system.write(names.map((name) => record(name, '1')))
    for (const key of [...names, 'slease/k', 's'])
      expect(await store.get({ key: utf8(key) })).toMatchObject({ found: false })
    expect((await store.scan({ ts: await store.tso(1), limit: 10 })).pairs).toEqual([])
    expect((await store.mvccGetByStartTs({ startTs: 1 })).key).toBeUndefined()
    await store.deleteRange({ start: utf8(''), end: Buffer.alloc(10, 0xff) })
    for (const name of names) expect(await store.system.get(name)).toBeDefined()
  })

  needing('places')('records stay over a restart', async () => {
    const place = await contract.place()
    const first = await open({ place })
    await first.system.write([record('pin/a', '1'), record('lease/k', '2')])
    await first.close()
    const { system } = await open({ place })
    expect([...(await system.list('pin/')).keys()]).toEqual(['pin/a'])
    expect(text((await system.get('lease/k')) ?? utf8(''))).toBe('2')
  })
}
