import { describe, expect, test } from 'vitest'
import { Db } from '../../../src/client/db.js'
import { type ChangedTxn, isKvError } from '../../../src/client/index.js'
import { openBackend } from '../../../src/embedded/open.js'
import { failureOf } from '../../coordinator/support.js'
import { BACKENDS, testDbs } from '../backends.js'

async function take<T>(items: AsyncIterable<T>, count: number): Promise<T[]> {
  const taken: T[] = []
  for await (const item of items) if (taken.push(item) === count) break
  return taken
}

function pairsOf(txns: readonly ChangedTxn[]): unknown[] {
  return txns.map(({ changes }) =>
    changes.map((change) => (change.op === 'put' ? [change.key, change.value] : change.op)),
  )
}

async function put(db: Db, ...keys: string[]): Promise<void> {
  for (const key of keys) await db.put(key, `value of ${key}`)
}

describe.each(BACKENDS)('$backend', ({ openDb }) => {
  const open = testDbs(openDb)

  test('transactions come whole, in order, behind a timestamp', async () => {
    const { db } = await open()
    await put(db, 'x')
    const { ts } = await db.snapshot()
    await db.transaction(async (txn) => {
      for (const key of ['b', 'x', 'a']) await txn.put(key, '1')
    })
    const { commitTs } = await db.delete('a')
    const txns = await take(db.changes({ sinceTs: ts, prefixes: ['a', 'b'], keys: ['x'] }), 2)
    expect(pairsOf(txns)).toEqual([
      [
        ['a', '1'],
        ['b', '1'],
        ['x', '1'],
      ],
      ['delete'],
    ])
    expect(txns[1]).toMatchObject({ isSnapshot: false, commitTs, part: 0, isLast: true, position: String(commitTs) })
  })

  test('0 is the beginning: as sinceTs, as position, of a consumer and its reset', async () => {
    const { db } = await open()
    await put(db, 'a')
    const [first] = await take(db.changes({ sinceTs: 0 }), 1)
    expect(pairsOf(first === undefined ? [] : [first])).toEqual([[['a', 'value of a']]])
    expect(await take(db.changes({ position: '0' }), 1)).toEqual([first])
    expect(await db.consumers.put('c', {}, { sinceTs: 0 })).toMatchObject({ position: 0 })
    expect(await take(db.changes({ consumer: 'c' }), 1)).toEqual([first])
    expect(await db.consumers.reset('c', { sinceTs: 0 })).toMatchObject({ position: 0 })
  })

  test('what is committed after the call comes, and what was before does not', async () => {
    const { db } = await open()
    await put(db, 'a')
    const changes = db.changes({ prefix: 'a' })
    let first: ChangedTxn | undefined
    const next = changes.next().then(({ value }) => {
      if (value) first = value
    })
    // Nobody sees when the loop has taken its timestamp.
    while (first === undefined) await put(db, 'a1')
    await next
    expect(pairsOf([first])).toEqual([[['a1', 'value of a1']]])
    await changes.return()
  })

  test('a snapshot, what follows it, and another loop from a position', async () => {
    const { db } = await open()
    await put(db, 'a1', 'a2', 'b')
    const given: ChangedTxn[] = []
    for await (const txn of db.changes({ prefix: 'a', snapshot: true })) {
      given.push(txn)
      if (txn.isSnapshot && txn.isLast) await put(db, 'a3', 'b', 'a4')
      if (!txn.isSnapshot) break
    }
    expect(pairsOf(given).flat()).toEqual(['a1', 'a2', 'a3'].map((key) => [key, `value of ${key}`]))
    const rest = await take(db.changes({ prefix: 'a', position: given.at(-1)?.position }), 1)
    expect(pairsOf(rest)).toEqual([[['a4', 'value of a4']]])
  })

  test('old values, and keys alone', async () => {
    const { db } = await open()
    const { ts } = await db.snapshot()
    const { commitTs } = await db.put('a', '1')
    await db.put('a', '2')
    const [first, second] = await take(db.changes({ sinceTs: ts, oldValues: true, as: 'bytes' }), 2)
    expect(first?.changes).toMatchObject([{ op: 'put', old: null }])
    expect(second?.changes).toMatchObject([{ op: 'put', old: { value: Uint8Array.of(49), commitTs } }])
    const [short] = await take(db.changes({ sinceTs: ts, keysOnly: true }), 1)
    expect(short?.changes).toEqual([{ op: 'put', key: 'a', commitTs }])
  })

  test('resolved timestamps come where nothing changes', async () => {
    const { db } = await open()
    const { commitTs } = await db.put('a', '1')
    const stop = new AbortController()
    const resolved: number[] = []
    const onResolved = (ts: number): void => {
      if (resolved.push(ts) === 3) stop.abort()
    }
    const options = { prefix: 'none', heartbeatMs: 100, onResolved, signal: stop.signal }
    for await (const _ of db.changes(options)) expect.unreachable()
    expect(resolved[0]).toBeGreaterThan(commitTs)
    expect(resolved).toEqual(resolved.toSorted((a, b) => a - b))
  })

  test('a removed range, and a transaction that is longer than a page', { tags: ['long'] }, async () => {
    const { db, store } = await open()
    const { ts } = await db.snapshot()
    await put(db, 'b')
    await store.deleteRange({ start: Buffer.from('a'), end: Buffer.from('z') })
    const [removed] = await take(db.changes({ sinceTs: ts, prefix: 'b' }), 1)
    expect(removed?.changes).toMatchObject([{ op: 'delete_range', start: Uint8Array.of(98), end: Uint8Array.of(99) }])
    const value = 'v'.repeat(500_000)
    const keys = Array.from({ length: 20 }, (_, i) => `k${String(i).padStart(2, '0')}`)
    await db.transaction(async (txn) => {
      for (const key of keys) await txn.put(key, value)
    })
    const given: string[] = []
    for await (const { changes, isLast } of db.changes({ sinceTs: removed?.commitTs })) {
      given.push(...changes.map((change) => (change.op === 'put' && change.value === value ? change.key : change.op)))
      if (isLast) break
    }
    expect(given).toEqual(keys)
  })

  test('a consumer: the loop begins at its position, and acknowledges what has been through it', async () => {
    const { db } = await open()
    const { ts } = await db.snapshot()
    await db.consumers.put('c', { prefix: 'a' }, { sinceTs: ts })
    await put(db, 'a1', 'b', 'a2')
    const stop = new AbortController()
    const given: unknown[] = []
    const onResolved = async (ts: number): Promise<void> => {
      const { position } = await db.consumers.ack('c', ts)
      expect(position).toBeGreaterThanOrEqual(ts)
      if (given.length === 2) stop.abort()
    }
    for await (const txn of db.changes({ consumer: 'c', onResolved, signal: stop.signal }))
      given.push(...pairsOf([txn]))
    const pairOf = (key: string): unknown => [[key, `value of ${key}`]]
    expect(given).toEqual([pairOf('a1'), pairOf('a2')])
  })

  test('a consumer that is not there is an error', async () => {
    const { db } = await open()
    expect(isKvError(await failureOf(take(db.changes({ consumer: 'nobody' }), 1)), 'not_found')).toBe(true)
  })

  test('a watch shows the present state, and the latest from then on', async () => {
    const { db } = await open()
    const states = db.watch('k')
    const next = async () => (await states.next()).value
    expect(await next()).toEqual({ value: undefined, commitTs: 0 })
    const first = await db.put('k', '1')
    expect(await next()).toEqual({ value: '1', ...first })
    const removed = await db.delete('k')
    expect(await next()).toEqual({ value: undefined, ...removed })
    const second = await db.put('k', '2')
    expect(await next()).toEqual({ value: '2', ...second })
    const [third] = await Promise.all([db.put('k', '3'), take(db.watch('k', { seenTs: second.commitTs }), 1)])
    expect(await next()).toEqual({ value: '3', ...third })
    await states.return()
  })

  test('keys that no path can name are watched too', async () => {
    const { db } = await open()
    await db.put('..', '1')
    const states = db.watch('..')
    expect(await states.next()).toMatchObject({ value: { value: '1' } })
    await db.delete('..')
    expect(await states.next()).toMatchObject({ value: { value: undefined } })
    await states.return()
  })

  test('loops end with the database', async () => {
    const { db } = await open()
    const watched = db.watch('k')
    await watched.next()
    const ends = [take(db.changes(), 1), take(watched, 1), take(db.watch('other'), 2)]
    await db.close()
    expect((await Promise.all(ends)).slice(0, 2)).toEqual([[], []])
  })
})

test('changes that are collected are an error', async () => {
  const backend = await openBackend(':memory:')
  const db = new Db(backend)
  await put(db, 'a')
  const { ts } = await db.snapshot()
  await put(db, 'a')
  await backend.database.gc(backend.database.store.time.clock())
  expect(isKvError(await failureOf(take(db.changes({ sinceTs: ts - 1 }), 1)), 'ts_below_safe_point')).toBe(true)
  await db.close()
})
