import type { IncomingMessage } from 'node:http'
import { deserialize, serialize } from 'node:v8'
import { type Kv, type KvEntryMaybe, type KvKey, type KvListOptions, type KvListSelector, openKv } from '@deno/kv'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { startServer, type TestServer } from '../support.js'

/** The questions of Deno's own tests of its databases (denoland/deno, tests/unit/kv_test.ts), by the client for Node. */

let server: TestServer
let databases = 0
let db: Kv

beforeAll(async () => {
  server = await startServer({ kvConnect: true })
})
afterAll(() => server.close())
beforeEach(async () => {
  const url = `http://127.0.0.1:${await server.listen()}/kv-connect/test-${databases++}`
  db = await openKv(url, { accessToken: 'a-token-of-any-kind', encodeV8: serialize, decodeV8: deserialize })
  return () => db.close()
})

const u64 = (value: unknown): bigint => (value as { readonly value: bigint }).value
const valueAt = async (key: KvKey): Promise<unknown> => (await db.get(key)).value

async function keysOf(selector: KvListSelector, options?: KvListOptions): Promise<string[]> {
  const keys: string[] = []
  for await (const { key } of db.list(selector, options)) keys.push(key.join(''))
  return keys
}

test('basic read, write, delete and versionstamps', async () => {
  expect(await db.get(['a'])).toEqual({ key: ['a'], value: null, versionstamp: null })
  const first = await db.set(['a'], 'b')
  expect(await db.get(['a'])).toEqual({ key: ['a'], value: 'b', versionstamp: first.versionstamp })
  const second = await db.set(['a'], 'c')
  expect(second.versionstamp > first.versionstamp).toBe(true)
  expect(await db.get(['a'])).toEqual({ key: ['a'], value: 'c', versionstamp: second.versionstamp })
  await db.delete(['a'])
  expect(await db.get(['a'])).toEqual({ key: ['a'], value: null, versionstamp: null })
})

const recursive: Record<string, unknown> = {}
recursive['a'] = recursive

test.each([
  'hello',
  42,
  42n,
  true,
  null,
  undefined,
  new Date(0),
  new Uint8Array([1, 2, 3]),
  new ArrayBuffer(3),
  [
    [1, 2],
    [3, 4],
  ],
  { a: { b: 1 } },
  new Map([['a', new Set([1])]]),
  recursive,
])('set and get the value %o', async (value) => {
  await db.set(['a'], value)
  expect(await valueAt(['a'])).toEqual(value)
})

test('set and get unset', async () => {
  await db.set(['a'], undefined)
  const entry = await db.get(['a'])
  expect(entry.value).toBeUndefined()
  expect(entry.versionstamp).not.toBeNull()
})

const KEYS: readonly KvKey[] = [
  ['a'],
  ['a', 'b', 'c'],
  [1],
  ['a', 1, 'b'],
  [1n],
  ['a', -(2n ** 70n), 'b'],
  [true],
  ['a', false, 'b'],
  [new Uint8Array([1, 0, 255])],
  ['\0', 'ä', '\u{10ffff}'],
  [1, 1n, true, new Uint8Array([1, 2, 3]), 'a'],
]

test.each(KEYS.map((key) => ({ key })))('set and get the key $key', async ({ key }) => {
  await db.set(key, 'b')
  expect(await db.get(key)).toMatchObject({ key, value: 'b' })
})

test('compare and mutate', async () => {
  const { versionstamp } = await db.set(['t'], '1')
  const second = await db
    .atomic()
    .check({ key: ['t'], versionstamp })
    .set(['t'], '2')
    .commit()
  expect(second).toMatchObject({ ok: true })
  expect(
    await db
      .atomic()
      .check({ key: ['t'], versionstamp })
      .set(['t'], '3')
      .commit(),
  ).toEqual({ ok: false })
  expect(await db.get(['t'])).toMatchObject({ value: '2', versionstamp: second.ok && second.versionstamp })
  expect(
    await db
      .atomic()
      .check({ key: ['t'], versionstamp: null })
      .set(['t'], '4')
      .commit(),
  ).toEqual({ ok: false })
  expect(
    await db
      .atomic()
      .check({ key: ['u'], versionstamp: null })
      .set(['u'], '5')
      .commit(),
  ).toMatchObject({ ok: true })
})

test('just one of two checks fails', async () => {
  const { versionstamp } = await db.set(['t1'], '1')
  await db.set(['t2'], '2')
  const write = db
    .atomic()
    .check({ key: ['t1'], versionstamp }, { key: ['t2'], versionstamp: null })
    .set(['t1'], '3')
  expect(await write.commit()).toEqual({ ok: false })
  expect([await valueAt(['t1']), await valueAt(['t2'])]).toEqual(['1', '2'])
})

test('the order of mutations of one key', async () => {
  await db.set(['a'], '1')
  await db.atomic().set(['a'], '2').delete(['a']).commit()
  expect(await valueAt(['a'])).toBeNull()
  await db.atomic().delete(['a']).set(['a'], '3').commit()
  expect(await valueAt(['a'])).toBe('3')
})

test('sum, min and max of KvU64', async () => {
  await db.atomic().sum(['n'], 10n).commit()
  await db.atomic().sum(['n'], 1n).commit()
  expect(u64(await valueAt(['n']))).toBe(11n)
  await db.atomic().min(['n'], 5n).min(['n'], 15n).commit()
  expect(u64(await valueAt(['n']))).toBe(5n)
  await db.atomic().max(['n'], 15n).max(['n'], 10n).commit()
  expect(u64(await valueAt(['n']))).toBe(15n)
  await db
    .atomic()
    .sum(['n'], 2n ** 64n - 1n)
    .commit()
  expect(u64(await valueAt(['n']))).toBe(14n)
  await db.atomic().min(['absent 1'], 3n).max(['absent 2'], 4n).commit()
  expect([u64(await valueAt(['absent 1'])), u64(await valueAt(['absent 2']))]).toEqual([3n, 4n])
})

test.each(['sum', 'min', 'max'] as const)('%s of a value of another type', async (type) => {
  await db.set(['a'], 1)
  await expect(db.atomic()[type](['a'], 1n).set(['b'], 2).commit()).rejects.toThrow(
    `Failed to perform '${type}' mutation on a non-U64 value in the database`,
  )
  expect(await valueAt(['b'])).toBeNull()
})

describe('list', () => {
  // None is the prefix itself: of that the client shows too much, or asks again for ever.
  const ENTRIES = ['aa', 'ab', 'ac', 'ad', 'ae', 'ba', 'bb']
  beforeEach(async () => {
    const write = db.atomic()
    for (const entry of ENTRIES) write.set([...entry], entry)
    await write.commit()
  })

  test.each<{ readonly selector: KvListSelector; readonly options?: KvListOptions; readonly want: string }>([
    { selector: { prefix: ['a'] }, want: 'aa ab ac ad ae' },
    { selector: { prefix: [] }, want: ENTRIES.join(' ') },
    { selector: { prefix: ['c'] }, want: '' },
    { selector: { prefix: ['a'], start: ['a', 'c'] }, want: 'ac ad ae' },
    { selector: { prefix: ['a'], start: ['a', 'f'] }, want: '' },
    { selector: { prefix: ['a'], end: ['a', 'c'] }, want: 'aa ab' },
    { selector: { prefix: ['a'], end: ['a', 'a'] }, want: '' },
    { selector: { start: ['a', 'd'], end: ['b', 'b'] }, want: 'ad ae ba' },
    { selector: { start: ['b'], end: ['b'] }, want: '' },
    { selector: { prefix: ['a'] }, options: { reverse: true }, want: 'ae ad ac ab aa' },
    { selector: { prefix: ['a'], start: ['a', 'c'] }, options: { reverse: true }, want: 'ae ad ac' },
    { selector: { prefix: ['a'], end: ['a', 'c'] }, options: { reverse: true }, want: 'ab aa' },
    { selector: { prefix: ['a'] }, options: { limit: 2 }, want: 'aa ab' },
    { selector: { prefix: ['a'] }, options: { limit: 2, reverse: true }, want: 'ae ad' },
    { selector: { prefix: ['a'] }, options: { batchSize: 1 }, want: 'aa ab ac ad ae' },
    { selector: { prefix: ['a'] }, options: { batchSize: 2 }, want: 'aa ab ac ad ae' },
    { selector: { prefix: ['a'] }, options: { batchSize: 2, reverse: true }, want: 'ae ad ac ab aa' },
    { selector: { prefix: ['a'] }, options: { batchSize: 5, consistency: 'eventual' }, want: 'aa ab ac ad ae' },
    { selector: { prefix: ['a'] }, options: { batchSize: 2, limit: 3 }, want: 'aa ab ac' },
  ])('$selector $options', async ({ selector, options, want }) => {
    expect((await keysOf(selector, options)).join(' ')).toBe(want)
  })

  test.each([false, true])('goes on at a cursor, reverse: %s', async (reverse) => {
    const first = db.list({ prefix: ['a'] }, { limit: 2, reverse })
    const keys: string[] = []
    for await (const { key } of first) keys.push(key.join(''))
    keys.push(...(await keysOf({ prefix: ['a'] }, { cursor: first.cursor, reverse })))
    expect(keys.join(' ')).toBe(reverse ? 'ae ad ac ab aa' : 'aa ab ac ad ae')
  })

  test('getMany reads in the order that was asked for', async () => {
    const found = await db.getMany([['b', 'a'], ['zz'], ['a', 'c'], ['b', 'a'], ['a']])
    expect(found.map(({ value }) => value)).toEqual(['ba', null, 'ac', 'ba', null])
  })
})

test('keys of other types are in the order of Deno', async () => {
  const keys: KvKey[] = [
    ['x', new Uint8Array([9])],
    ['x', 'text'],
    ['x', -1n],
    ['x', 2n],
    ['x', 0.5],
    ['x', false],
    ['x', true],
  ]
  await Promise.all([...keys].reverse().map((key) => db.set(key, 1)))
  const found: KvKey[] = []
  for await (const { key } of db.list({ prefix: ['x'] })) found.push(key)
  expect(found).toEqual([
    ['x', new Uint8Array([9])],
    ['x', 'text'],
    ['x', -1n],
    ['x', 2n],
    ['x', 0.5],
    ['x', false],
    ['x', true],
  ])
})

test('expireIn', async () => {
  await db.set(['a'], 1, { expireIn: 50 })
  await db.set(['b'], 2, { expireIn: 60_000 })
  await expect.poll(() => valueAt(['a'])).toBeNull()
  expect(await valueAt(['b'])).toBe(2)
})

test('watch shows the present and then the latest state', async () => {
  const reader = db.watch([['a'], ['b']]).getReader()
  const next = async () => ((await reader.read()).value as KvEntryMaybe<unknown>[]).map(({ value }) => value)
  const first = await db.set(['a'], 1)
  let seen = await next()
  while (seen[0] !== 1) seen = await next()
  expect(seen).toEqual([1, null])
  await db
    .atomic()
    .check({ key: ['a'], versionstamp: first.versionstamp })
    .set(['a'], 2)
    .set(['b'], 3)
    .commit()
  expect(await next()).toEqual([2, 3])
  await db.delete(['a'])
  expect(await next()).toEqual([null, 3])
  await reader.cancel()
})

test('its calls go through the fast lane', async () => {
  const urls: (string | undefined)[] = []
  const seen = ({ url }: IncomingMessage): void => void urls.push(url)
  server.app.server.on('request', seen)
  await db.set(['a'], 1)
  await db.getMany([['a'], ['b']])
  server.app.server.off('request', seen)
  expect(urls).toEqual([])
})

test('an enqueue is refused', async () => {
  await expect(db.enqueue('job')).rejects.toThrow()
})
