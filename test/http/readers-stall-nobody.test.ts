import { expect, test } from 'vitest'
import { openLevelDb } from '../../src/store/leveldb/directory/open-level-db.js'
import type { Engine } from '../../src/store/leveldb/engine/engine.js'
import { type Deferred, deferred, watch } from '../store/support.js'
import { okBody, testServers } from './support.js'

const start = testServers()

/** LevelDB whose iterators answer when the test lets them. */
class HeldReads {
  gate: Deferred | undefined
  held = 0

  readonly open = async (directory: string): Promise<Engine> => {
    const engine = await openLevelDb(directory)
    const snapshot: Engine['snapshot'] = () => {
      const taken = engine.snapshot()
      const iterator: Engine['iterator'] = (range) => {
        const one = taken.iterator(range)
        const nextv: typeof one.nextv = async (size) => {
          this.held++
          await this.gate?.promise
          return one.nextv(size)
        }
        return { nextv, close: () => one.close() }
      }
      return { ...taken, iterator }
    }
    return { ...engine, snapshot }
  }

  hold(): void {
    this.held = 0
    this.gate = deferred()
  }
}

const SCANS = Array.from({ length: 50 }, () => ({ op: 'scan', prefix: 's/', limit: 1 }))
const READERS: Readonly<Record<string, readonly [url: string, body: object]>> = {
  'a transaction that reads': ['/v1/txn', { ops: [{ op: 'get', key: 'k' }, ...SCANS] }],
  'a serializable one': ['/v1/txn', { isolation: 'serializable', ops: [{ op: 'get', key: 'k' }, ...SCANS] }],
  'one that checks': ['/v1/txn', { checks: [{ key: 'k', exists: true }], ops: SCANS }],
  'one that writes another key': [
    '/v1/txn',
    { ops: [{ op: 'put', key: 'z', value: '1' }, { op: 'get', key: 'k' }, ...SCANS] },
  ],
  'a look at the versions of the key': ['/v1/percolator/mvcc_get_by_key', { key: 'k' }],
}

for (const [name, [url, body]] of Object.entries(READERS))
  test(`${name} keeps no writer of the key waiting`, { tags: ['long'] }, async () => {
    const reads = new HeldReads()
    const server = await start({ openEngine: reads.open })
    const first = await server.put('k', 'old')
    reads.hold()
    const reading = watch(server.post(url, body))
    while (reads.held === 0) await new Promise((next) => setImmediate(next)) // It is in the middle of its work.
    const second = await server.put('k', 'new')
    expect(second).toBeGreaterThan(first)
    expect((await server.get('/v1/kv/k')).body).toBe('new')
    expect(reading.isSettled()).toBe(false)
    reads.gate?.resolve()
    const answer = okBody(await reading.promise)
    if (url === '/v1/txn' && !('checks' in body)) {
      const found = (answer['results'] as object[]).find((result) => 'found' in result)
      expect(found).toMatchObject({ value: 'old', commit_ts: first })
    }
  })

test('of what a transaction checks before it writes nobody may change anything meanwhile', {
  tags: ['long'],
}, async () => {
  const reads = new HeldReads()
  const server = await start({ openEngine: reads.open })
  await server.put('k', 'old')
  reads.hold()
  const body = {
    checks: [{ key: 'k', value: 'old' }],
    ops: [
      { op: 'scan', prefix: 's/' },
      { op: 'put', key: 'z', value: '1' },
    ],
  }
  const checking = watch(server.post('/v1/txn', body))
  while (reads.held === 0) await new Promise((next) => setImmediate(next))
  const writing = watch(server.put('k', 'new'))
  reads.gate?.resolve()
  const { commit_ts } = okBody(await checking.promise)
  expect(await writing.promise).toBeGreaterThan(Number(commit_ts))
})
