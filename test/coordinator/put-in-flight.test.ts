import { expect, test } from 'vitest'
import { COMMIT_OPTIONS_DEFAULT, Coordinator } from '../../src/coordinator/coordinator.js'
import { openMemoryStore } from '../../src/store/leveldb/leveldb-store.js'
import { TIMESTAMP_MAX } from '../../src/timestamp.js'
import { codeOf, utf8 } from '../store/support.js'

const OPTIONS = { mode: 'pessimistic', isolation: 'snapshot', lockWaitMs: 0 } as const

test('a commit has the write that still waits for its lock', async () => {
  const store = await openMemoryStore()
  const txn = await new Coordinator(store, COMMIT_OPTIONS_DEFAULT).begin(OPTIONS)
  await txn.put(utf8('a'), utf8('1'))
  const putting = txn.put(utf8('b'), utf8('2'))
  const commitTs = await txn.commit()
  await putting
  expect(await store.get({ key: utf8('b') })).toMatchObject({ found: true, commitTs })
  const all = { start: undefined, end: undefined, maxTs: TIMESTAMP_MAX }
  expect((await store.scanLock(all)).locks).toEqual([])
})

test('so a lease that it needs and the commit has not leaves the transaction open', async () => {
  const store = await openMemoryStore()
  const txn = await new Coordinator(store, COMMIT_OPTIONS_DEFAULT).begin(OPTIONS)
  const putting = txn.put(utf8('a'), utf8('1'), { lease: 'l' })
  expect(await codeOf(txn.commit())).toBe('invalid_argument')
  await putting
  expect(txn.state).toBe('open')
  await txn.rollback()
})
