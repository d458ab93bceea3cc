import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { DataDirectoryError, type Db, KvError, type OpenOptions, open, Undetermined } from '../../src/index.js'
import { packRecord } from '../../src/percolator/codec/record.js'
import { openLevelDb } from '../../src/store/leveldb/directory/open-level-db.js'
import { META_FORMAT } from '../../src/store/leveldb/records/keyspace.js'
import { collect, failureOf } from '../coordinator/support.js'

let root: string
let opened: Db[]

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'perkv-open-'))
  opened = []
})
afterEach(async () => {
  for (const db of opened) await db.close()
  await rm(root, { recursive: true, force: true })
})

async function openIn(directory: string, options: OpenOptions = {}): Promise<Db> {
  const db = await open(directory, { durability: 'async', ...options })
  opened.push(db)
  return db
}

describe('a directory', () => {
  test('is made with those above it, and has everything again when it is opened later', async () => {
    const directory = join(root, 'a/b')
    const first = await openIn(directory)
    const { commitTs } = await first.put('k', 'v')
    await first.close()
    const second = await openIn(directory)
    expect(await second.getVersion('k')).toEqual({ value: 'v', commitTs })
    expect((await second.put('k', 'w')).commitTs).toBeGreaterThan(commitTs)
  })

  test('is open once in a process, by whatever path, until it is closed', async () => {
    const directory = join(root, 'data')
    const db = await openIn(directory)
    await symlink(directory, join(root, 'link'))
    for (const path of [directory, `${directory}/`, join(root, 'link')]) {
      const error = await failureOf(open(path))
      expect(error).toBeInstanceOf(DataDirectoryError)
      expect(error.message).toBe(`the data directory ${path} is open in this process already`)
    }
    await db.put('k', 'v')
    await db.close()
    expect(await (await openIn(join(root, 'link'))).get('k')).toBe('v')
  })

  test('of two that open it at once one has it', async () => {
    const both = await Promise.allSettled([openIn(join(root, 'data')), openIn(join(root, 'data'))])
    expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
  })

  test('that cannot be used is refused, left as it is, and may be tried again', async () => {
    await writeFile(join(root, 'file'), 'x')
    const newer = join(root, 'newer')
    await openIn(newer).then((db) => db.close())
    const engine = await openLevelDb(newer)
    await engine.write([{ type: 'put', key: META_FORMAT, value: packRecord([99]) }], true)
    await engine.close()
    const foreign = join(root, 'foreign')
    await mkdir(foreign)
    await writeFile(join(foreign, 'CURRENT'), 'MANIFEST-000007\n')
    for (const path of [join(root, 'file'), join(root, 'file/below'), newer, foreign])
      for (let tries = 0; tries < 2; tries++)
        expect(await failureOf(open(path)), path).toBeInstanceOf(DataDirectoryError)
    expect((await failureOf(open(newer))).message).toContain('written by a newer PerKV')
    expect((await readdir(root)).sort()).toEqual(['file', 'foreign', 'newer'])
  })
})

test('in memory: each is another, and leaves nothing behind', async () => {
  const [one, other] = await Promise.all([open(':memory:'), open(':memory:')])
  opened.push(one, other)
  await one.transaction((txn) => txn.increment('n'))
  expect(await one.get('n')).toBe('1')
  expect(await other.get('n')).toBeUndefined()
  await one.close()
  expect((await failureOf(one.get('n'))).message).toBe('this database is closed')
})

describe('options', () => {
  const wrong: readonly object[] = [
    { durabilty: 'sync' },
    { durability: 'none' },
    { cacheBytesMax: -1 },
    { blockCacheBytes: 2 ** 32 },
    { compression: 'zip' },
    { versionsMs: 0 },
    { versionsMs: 50.3 },
    { keyBytesMax: 8193 },
    { valueBytesMax: 0.5 },
    { lockWaitMs: '5' },
    { onWarning: 'log' },
  ]
  test.each(wrong)('%o is a mistake, and makes no directory', async (options) => {
    expect(await failureOf(open(join(root, 'data'), options))).toBeInstanceOf(TypeError)
    expect(await readdir(root)).toEqual([])
  })

  test('a path that is none', async () => {
    for (const path of ['', undefined, 7]) expect(await failureOf(open(path as string))).toBeInstanceOf(TypeError)
  })

  test('versionsMs: older versions are collected', async () => {
    const db = await openIn(join(root, 'data'), { versionsMs: 20 })
    const { commitTs } = await db.put('k', 'old')
    await db.put('k', 'new')
    await expect.poll(() => db.get('k', { ts: commitTs }).catch(({ code }) => code)).toBe('ts_below_safe_point')
    expect(await db.get('k')).toBe('new')
  })

  test('the lengths of keys and values hold for every call, and refuse for good', async () => {
    const db = await openIn(join(root, 'data'), { keyBytesMax: 3, valueBytesMax: 3 })
    const tooLong: readonly (() => Promise<unknown>)[] = [
      () => db.get('long'),
      () => db.batchGet(['a', 'long']),
      () => db.put('long', 'x'),
      () => db.put('a', 'long'),
      () => db.delete('long'),
      () => db.transaction((txn) => txn.put('long', 'x')),
      () => db.transaction((txn) => txn.put('a', 'long')),
      () => db.transaction((txn) => txn.put('long', 'x'), { mode: 'pessimistic' }),
      () => db.transaction((txn) => txn.get('long')),
    ]
    for (const call of tooLong) {
      const error = await failureOf(call())
      expect(error, String(call)).toBeInstanceOf(KvError)
      expect(error, String(call)).not.toBeInstanceOf(Undetermined)
      expect(error, String(call)).toMatchObject({ code: 'payload_too_large' })
    }
    expect(await failureOf(db.transaction((txn) => txn.put('', 'x')))).toMatchObject({ code: 'invalid_argument' })
    expect(await db.count()).toBe(0)
  })
})

describe('bytes', () => {
  test('that were read are the caller’s: changing them changes neither the cache nor the database', async () => {
    const db = await openIn(join(root, 'data'))
    const value = new TextEncoder().encode('value')
    await db.put('k', value)
    await db.put('long', new Uint8Array(1000).fill(7))
    for (let i = 0; i < 3; i++) {
      const snapshot = await db.snapshot()
      const read = [
        await db.get('k', { as: 'bytes' }),
        (await db.getVersion('k', { as: 'bytes' }))?.value,
        ...(await db.batchGet(['k', 'k'], { as: 'bytes' })),
        await snapshot.get('k', { as: 'bytes' }),
        ...(await collect(db.scan({ as: 'bytes', limit: 1 }))).map((pair) => pair.value),
        await db.transaction((txn) => txn.get('k', { as: 'bytes' })),
        await db.transaction((txn) => txn.getForUpdate('k', { as: 'bytes' }), { mode: 'pessimistic' }),
      ]
      for (const bytes of read) {
        expect(bytes).toEqual(value)
        bytes?.fill(0)
      }
      const long = await db.get('long', { as: 'bytes' })
      expect(long).toEqual(new Uint8Array(1000).fill(7))
      long?.fill(0)
    }
  })

  test('that were given are copied', async () => {
    const db = await openIn(join(root, 'data'))
    const key = Buffer.from('k')
    const value = Buffer.from('before')
    const writing = db.put(key, value)
    key.write('x')
    value.write('AFTER!')
    await writing
    expect(await collect(db.scan())).toMatchObject([{ key: 'k', value: 'before' }])
  })
})

test('an idempotency key holds over a restart', async () => {
  const directory = join(root, 'data')
  const once = { idempotencyKey: 'order 17', ifAbsent: true } as const
  const before = await openIn(directory)
  const first = await before.put('k', 'v', once)
  await before.close()
  const db = await openIn(directory)
  await db.put('k', 'later')
  expect(await db.put('k', 'v', once)).toEqual(first)
  expect(await db.get('k')).toBe('later')
  for (const [key, value] of [
    ['k', 'w'],
    ['l', 'v'],
    ['kv', ''],
  ] as const)
    expect(await failureOf(db.put(key, value, once))).toMatchObject({ code: 'idempotency_mismatch' })
  expect(await failureOf(db.delete('k', { idempotencyKey: 'order 17' }))).toMatchObject({
    code: 'idempotency_mismatch',
  })
})

describe('close', () => {
  test('finishes what is in flight', async () => {
    const directory = join(root, 'data')
    const db = await openIn(directory)
    await db.put('n', '0')
    let goOn = (): void => {}
    const held = new Promise<void>((resolve) => {
      goOn = resolve
    })
    const committing = await db.begin()
    await committing.put('begun', 'x')
    const calls = [
      ...Array.from({ length: 20 }, (_, i) => db.put(`k${i}`, 'v')), // No more than one page of the scan.
      db.transaction(async (txn) => {
        await txn.increment('n')
        await held
        await txn.put('late', 'x')
      }),
      committing.commit(),
    ]
    const reads = [db.get('k0'), db.batchGet(['n']), db.count(), collect(db.scan())]
    const closing = db.close()
    const refused = [db.get('k'), db.put('k', 'v'), db.begin(), db.transaction(() => 7), db.count(), db.snapshot()]
    for (const error of await Promise.all(refused.map(failureOf))) {
      expect(error).toBeInstanceOf(TypeError)
      expect(error.message).toBe('this database is closed')
    }
    goOn()
    await Promise.all([...calls, ...reads, closing, db.close()])
    const again = await openIn(directory)
    expect(await again.count({ prefix: 'k' })).toBe(20)
    expect(await again.batchGet(['n', 'late', 'begun'])).toEqual(['1', 'x', 'x'])
  })

  test('rolls back what is open, whose calls then throw', { tags: ['long'] }, async () => {
    const directory = join(root, 'data')
    const db = await openIn(directory)
    const snapshot = await db.snapshot()
    const [optimistic, pessimistic] = [await db.begin(), await db.begin({ mode: 'pessimistic' })]
    await optimistic.put('a', 'x')
    await pessimistic.put('b', 'x')
    const waiter = await db.begin({ mode: 'pessimistic', lockWaitMs: 300 })
    const waiting = failureOf(waiter.put('b', 'y'))
    await db.close()
    expect(await waiting).toBeInstanceOf(KvError)
    for (const txn of [optimistic, pessimistic, waiter]) {
      expect((await failureOf(txn.put('c', 'x'))).message).toBe('this database is closed')
      expect((await failureOf(txn.commit())).message).toBe('this database is closed')
      await txn.rollback()
    }
    expect((await failureOf(snapshot.get('a'))).message).toBe('this database is closed')
    expect(await (await openIn(directory)).count()).toBe(0)
  })

  test('many transactions that have ended are not kept', { tags: ['long'] }, async () => {
    const db = await openIn(join(root, 'data'))
    const open = await db.begin()
    await open.put('k', 'v')
    for (let i = 0; i < 300; i++) await db.transaction((txn) => txn.put('n', String(i)))
    await open.commit()
    expect(await db.batchGet(['k', 'n'])).toEqual(['v', '299'])
  })
})

test('what no call fails with is a warning', async () => {
  const warnings: string[] = []
  const step = vi.spyOn(Date, 'now')
  try {
    const db = await openIn(join(root, 'data'), { onWarning: (message) => warnings.push(message) })
    await db.put('k', 'v')
    step.mockImplementation(() => performance.timeOrigin + performance.now() + 3_600_000)
    await expect.poll(async () => (await db.put('k', 'v')) && warnings.length).toBeGreaterThan(0)
    expect(warnings[0]).toContain('clock')
  } finally {
    step.mockRestore()
  }
})
