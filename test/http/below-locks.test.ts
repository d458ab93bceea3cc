import { describe, expect, test } from 'vitest'
import { decodeBackup } from '../../src/backup/backup-decoder.js'
import { expectProblem, numberOf, okBody, type Sent, type TestServer, testServers } from './support.js'

const start = testServers()
const NDJSON = { accept: 'application/x-ndjson' }
const LIVING = { lock_ttl: 600_000 }

/** Keys before and after a lock that lives, of which the count and all exports are the same. */
async function locked(kind: 'two-phase' | 'async' = 'two-phase') {
  const server = await start()
  await server.put('a', '1')
  await server.put('m', '1')
  const startTs = numberOf(await server.ok('tso', {}), 'ts')
  const rest = kind === 'async' ? { use_async_commit: true, secondaries: [] } : {}
  await server.lock(startTs, ['m'], { ...LIVING, ...rest })
  await server.put('z', 'later')
  return { server, startTs }
}

const tsOf = ({ headers }: Sent): number => Number(headers['snapshot-ts'])

async function keysOfBackup(bytes: Buffer): Promise<string[]> {
  const keys: string[] = []
  async function* source() {
    yield bytes
  }
  for await (const block of decodeBackup(source()))
    if (block.type === 'data') keys.push(...block.pairs.map(({ key }) => Buffer.from(key).toString()))
  return keys
}

describe.each(['two-phase', 'async'] as const)('a living lock of a %s transaction', (kind) => {
  test('a count is of the snapshot below it, and says which', async () => {
    const { server, startTs } = await locked(kind)
    const counted = okBody(await server.get('/v1/kv?count_only&lock_wait_ms=0'))
    expect(counted['count']).toBe(2)
    expect(counted['ts']).toBeGreaterThanOrEqual(startTs - 1)
    expect(okBody(await server.get(`/v1/kv?count_only&ts=${counted['ts']}`))).toEqual(counted)
  })

  test('a stream without a limit is of the snapshot below it, and says which', async () => {
    const { server } = await locked(kind)
    const streamed = await server.get('/v1/kv?lock_wait_ms=0', NDJSON)
    expect(streamed.statusCode, streamed.body).toBe(200)
    const { pairs } = okBody(await server.get(`/v1/kv?ts=${tsOf(streamed)}`))
    expect(
      streamed.body
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toEqual(pairs)
    expect((pairs as unknown[]).length).toBe(2)
  })

  test('a backup is of the snapshot below it, and says which', async () => {
    const { server } = await locked(kind)
    const made = await server.get('/v1/admin/backup?lock_wait_ms=0')
    expect(made.statusCode, made.body).toBe(200)
    expect(await keysOfBackup(made.rawPayload)).toEqual(['a', 'm'])
    const again = await server.get(`/v1/admin/backup?ts=${tsOf(made)}`)
    expect(again.rawPayload.equals(made.rawPayload)).toBe(true)
  })

  test('is waited for by a page, by a stream with a limit, and by whoever names a snapshot above it', async () => {
    const { server, startTs } = await locked(kind)
    const ts = numberOf(await server.ok('tso', {}), 'ts')
    for (const query of ['', '&limit=10', `&ts=${ts}`, `&ts=${ts}&count_only`])
      expectProblem(await server.get(`/v1/kv?lock_wait_ms=0${query}`), 'key_locked')
    for (const query of ['&limit=10', `&ts=${ts}`])
      expectProblem(await server.get(`/v1/kv?lock_wait_ms=0${query}`, NDJSON), 'key_locked')
    expectProblem(await server.get(`/v1/admin/backup?lock_wait_ms=0&ts=${ts}`), 'key_locked')
    expect(ts).toBeGreaterThan(startTs)
  })

  test('of another range is passed over', async () => {
    const { server } = await locked(kind)
    const counted = okBody(await server.get('/v1/kv?start=n&count_only&lock_wait_ms=0'))
    expect(counted['count']).toBe(1)
    const streamed = await server.get('/v1/kv?start=n&lock_wait_ms=0', NDJSON)
    expect(JSON.parse(streamed.body)).toMatchObject({ key: 'z', value: 'later' })
  })
})

const whole = async (server: TestServer) => ({
  count: okBody(await server.get('/v1/kv?count_only'))['count'],
  lines: (await server.get('/v1/kv', NDJSON)).body.trim().split('\n').length,
  keys: (await keysOfBackup((await server.get('/v1/admin/backup')).rawPayload)).length,
})

test('locks of transactions that are over are ended, and what they have committed is there', async () => {
  const server = await start()
  const startTs = numberOf(await server.ok('tso', {}), 'ts')
  await server.lock(startTs, ['p', 's'], LIVING)
  const commitTs = numberOf(await server.ok('tso', {}), 'ts')
  await server.ok('commit', { keys: ['p'], start_ts: startTs, commit_ts: commitTs })
  expect(await whole(server)).toEqual({ count: 2, lines: 2, keys: 2 })
})

test('locks that change nothing are passed over, and those of the oldest transaction decide', async () => {
  const server = await start()
  await server.put('a', '1')
  const older = numberOf(await server.ok('tso', {}), 'ts')
  const between = await server.put('b', '1')
  const younger = numberOf(await server.ok('tso', {}), 'ts')
  const forUpdate = { primary: 'x', start_ts: older - 1, for_update_ts: older - 1, ...LIVING }
  await server.ok('acquire_pessimistic_lock', { keys: ['x'], ...forUpdate })
  await server.lock(younger, ['c'], LIVING)
  const counted = okBody(await server.get('/v1/kv?count_only&lock_wait_ms=0'))
  expect(counted).toEqual({ count: 2, ts: younger - 1 })
  await server.lock(older, ['d'], LIVING)
  expect(okBody(await server.get('/v1/kv?count_only&lock_wait_ms=0'))).toEqual({ count: 1, ts: older - 1 })
  expect(between).toBeGreaterThan(older)
})

test('a count and an export without locks have every write that was acknowledged', async () => {
  const server = await start()
  await server.put('a', '1')
  const commitTs = await server.put('b', '1')
  expect(await whole(server)).toEqual({ count: 2, lines: 2, keys: 2 })
  expect(okBody(await server.get('/v1/kv?count_only'))['ts']).toBeGreaterThanOrEqual(commitTs)
})
