import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { type IncomingMessage, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { decodeBackup } from '../../../src/backup/backup-decoder.js'
import type { BackupHeader } from '../../../src/backup/backup-format.js'
import { backup } from '../../../src/commands/backup.js'
import { reopenTestStore } from '../../store/test-store.js'
import { expectProblem, type Json, numberOf, okBody, type TestServer, testServers } from '../support.js'

const start = testServers()
const URL = '/v1/admin/backup'

async function backupOf(server: TestServer, query = ''): Promise<Buffer> {
  const response = await server.get(`${URL}${query}`)
  expect(response.statusCode, response.body).toBe(200)
  expect(response.headers['content-type']).toBe('application/octet-stream')
  return response.rawPayload
}

const restore = (server: TestServer, file: Buffer, query = '') =>
  server.send('POST', `/v1/admin/restore${query}`, { 'content-type': 'application/octet-stream' }, file)

/** Every pair with its commit_ts, as the scan shows it. */
async function scan(server: TestServer, query = ''): Promise<string> {
  const response = await server.get(`/v1/kv${query}`, { accept: 'application/x-ndjson' })
  expect(response.statusCode, response.body).toBe(200)
  return response.body
}

interface Opened {
  readonly header: BackupHeader
  readonly pairs: readonly Json[]
  /** Where each block ends. */
  readonly ends: readonly number[]
}

async function open(file: Buffer): Promise<Opened> {
  let header: BackupHeader | undefined
  const pairs: Json[] = []
  const ends: number[] = []
  let at = 12
  async function* source() {
    yield file
  }
  for await (const block of decodeBackup(source())) {
    at += 9 + file.readUInt32BE(at + 1)
    ends.push(at)
    if (block.type === 'header') header = block.header
    if (block.type === 'data')
      for (const { key, value, commitTs } of block.pairs)
        pairs.push({ key: key.toString(), value: String(value), commit_ts: commitTs })
  }
  if (header === undefined) throw new Error('no header')
  return { header, pairs, ends }
}

const binary = (...bytes: number[]) => ({ base64: Buffer.from(bytes).toString('base64') })

/** Enough for several blocks: short values, long ones, bytes that are no text, an empty value, versions, a deletion. */
async function fill(server: TestServer): Promise<void> {
  await server.txn({
    ops: [
      { op: 'put', key: 'gone', value: 'x' },
      { op: 'put', key: 'long/003', value: 'older' },
    ],
  })
  const long = Array.from({ length: 40 }, (_, i) => ({
    op: 'put',
    key: `long/${String(i).padStart(3, '0')}`,
    value: String.fromCharCode(97 + (i % 26)).repeat(20_000 + i),
  }))
  const odd = [
    { op: 'put', key: binary(0), value: binary() },
    { op: 'put', key: binary(0, 0), value: binary(255, 0, 1) },
    { op: 'put', key: binary(...new Array(4096).fill(255)), value: 'the last key' },
  ]
  await server.txn({ ops: [...long, ...odd, { op: 'delete', key: 'gone' }] })
  await server.put('short', 'v')
}

describe('backup', () => {
  test('is the snapshot at ts while writes go on', async () => {
    const server = await start()
    await fill(server)
    const { ts } = (await server.get('/v1/kv?limit=1')).json<{ ts: number }>()
    const before = await scan(server, `?ts=${ts}`)
    let isOver = false
    const writing = (async () => {
      for (let i = 0; !isOver; i++) {
        await server.put(`long/${String(i % 60).padStart(3, '0')}`, `new ${i}`)
        await server.remove(`long/${String((i + 7) % 60).padStart(3, '0')}`)
      }
    })()
    const file = await backupOf(server, `?ts=${ts}`)
    isOver = true
    await writing
    const { header, pairs, ends } = await open(file)
    expect(header).toMatchObject({ ts, perkv: '0.0.0-test' })
    expect(ends.length).toBeGreaterThan(4)
    expect(pairs).toHaveLength(before.trimEnd().split('\n').length)
    const other = await start()
    okBody(await restore(other, file))
    expect(await scan(other)).toBe(before)
  })

  test('is of the newest moment by default, and its name says which', async () => {
    const server = await start()
    const commitTs = await server.put('k', 'v')
    const response = await server.get(URL)
    const { header, pairs } = await open(response.rawPayload)
    expect(header.ts).toBeGreaterThan(commitTs)
    expect(pairs).toEqual([{ key: 'k', value: 'v', commit_ts: commitTs }])
    expect(response.headers['content-disposition']).toBe(`attachment; filename="perkv-${header.ts}.backup"`)
  })

  test('from a key on is a part of the same snapshot, and no backup by itself', async () => {
    const server = await start()
    for (const key of ['a', 'b', 'c']) await server.put(key, key)
    const whole = await open(await backupOf(server))
    const file = await backupOf(server, `?ts=${whole.header.ts}&start=a%00`)
    const part = await open(file)
    expect(part.header).toEqual({ ...whole.header, start: Buffer.from('a\0') })
    expect(part.pairs).toEqual(whole.pairs.slice(1))
    const other = await start()
    expectProblem(await restore(other, file), 'invalid_argument', { field: 'body' })
    expect(await scan(other)).toBe('')
    const { header } = await open(await backupOf(server, `?start=${'%FF'.repeat(4096)}%00`)) // After the longest key.
    expect(header.id).not.toBe(whole.header.id)
  })

  test('of a snapshot that is asked for waits for locks that live, and meets those that do not', async () => {
    const server = await start()
    const dead = await server.put('dead', 'v')
    const tso = async () => numberOf(await server.ok('tso', {}), 'ts')
    await server.lock(await tso(), ['dead'], { lock_ttl: 0 })
    await server.lock(await tso(), ['held'], { lock_ttl: 60_000 })
    expectProblem(await server.get(`${URL}?ts=${await tso()}&lock_wait_ms=0`), 'key_locked')
    const { pairs } = await open(await backupOf(server, '?lock_wait_ms=0&start=i'))
    expect(pairs).toEqual([])
    const held = (await server.ok('scan_lock', { max_ts: await tso() }))['locks'] as Json[]
    await server.ok('rollback', { keys: ['held'], start_ts: held[held.length - 1]?.['start_ts'] })
    expect((await open(await backupOf(server))).pairs).toEqual([{ key: 'dead', value: 'v', commit_ts: dead }])
  })

  test('refused', async () => {
    const server = await start()
    await server.put('k', 'v')
    const { safe_point } = await server.ok('gc', { safe_point: numberOf(await server.ok('tso', {}), 'ts') })
    expectProblem(await server.get(`${URL}?ts=5`), 'ts_below_safe_point', { safe_point })
    expectProblem(await server.get(`${URL}?ts=${2 ** 52}`), 'invalid_argument', { field: 'ts' })
    expectProblem(await server.get(`${URL}?ts=x`), 'invalid_argument', { field: 'ts' })
    expectProblem(await server.get(`${URL}?end=x`), 'invalid_argument', { field: 'end' })
  })
})

test('perkv backup registers its consumer so that it can hold the snapshot, and increments follow', {
  tags: ['long'],
}, async () => {
  const server = await start({ ownApp: true })
  const directory = await mkdtemp(join(tmpdir(), 'perkv-backup-'))
  const perkv = async (...args: readonly string[]) =>
    backup.run(
      [...args, '--consumer', 'nightly', '--server', `http://127.0.0.1:${await server.listen()}`, '--quiet'],
      {},
    )
  try {
    await server.put('a', '1')
    const [full, increment] = [join(directory, 'full'), join(directory, 'increment')] as const
    await perkv(full)
    // A snapshot that cannot be held is transferred again.
    const transfers = /^perkv_http_stream_duration_seconds_count\{.*"\/v1\/admin\/backup".*\} (\d+)$/m
    await expect.poll(async () => transfers.exec((await server.get('/metrics')).body)?.[1]).toBe('1')
    await server.put('b', '2')
    await perkv('--since', full, increment)
    expect((await open(await readFile(increment))).pairs).toMatchObject([{ key: 'b' }])
    expect(okBody(await server.get('/v1/consumers/nightly'))).toMatchObject({ is_lost: false })
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
})

describe('restore', () => {
  test('gives the same pairs, bytes, commit_ts and ETags, over a restart too', async () => {
    const server = await start()
    await fill(server)
    const file = await backupOf(server)
    const { header, pairs } = await open(file)
    const other = await start()
    expect(okBody(await restore(other, file))).toMatchObject({ id: header.id, ts: header.ts, pairs: pairs.length })
    const all = await scan(server)
    expect(await scan(other)).toBe(all)
    expect((await other.get('/v1/kv/short')).headers['etag']).toBe((await server.get('/v1/kv/short')).headers['etag'])
    await other.store.close()
    const again = await reopenTestStore(other.directory)
    try {
      const { pairs: found } = await again.scan({ limit: 1000, ts: await again.tso(1) })
      expect(found.map(({ key, value, commitTs }) => [key.toString(), value?.toString(), commitTs])).toEqual(
        pairs.map(({ key, value, commit_ts }) => [key, value, commit_ts]),
      )
    } finally {
      await again.close()
    }
  })

  test('an empty backup fills an empty store with nothing', async () => {
    const file = await backupOf(await start())
    const server = await start()
    expect(okBody(await restore(server, file))).toMatchObject({ pairs: 0, bytes: 0 })
    expect(await scan(server)).toBe('')
    await server.put('k', 'v')
  })

  test('timestamps go on above everything in it, though the clock is an hour behind', { tags: ['long'] }, async () => {
    const ahead = Date.now() + 3_600_000
    const server = await start({ now: () => ahead })
    const commitTs = await server.put('k', 'v1')
    const other = await start()
    okBody(await restore(other, await backupOf(server)))
    expect(numberOf(await other.ok('tso', {}), 'ts')).toBeGreaterThan(commitTs)
    expect(await other.put('k', 'v2')).toBeGreaterThan(commitTs)
    expect((await other.get('/v1/kv/k')).body).toBe('v2')
    // The clock has gone along: nothing waits for it, and locks are as old as they are.
    expect((await other.call('tso', { count: 1_000_000 })).statusCode).toBe(200)
    await other.lock(numberOf(await other.ok('tso', {}), 'ts'), ['k'], { lock_ttl: 1 })
    expect(await other.put('k', 'v3')).toBeGreaterThan(commitTs)
    const tomorrow = await start({ now: () => Date.now() + 25 * 3_600_000 })
    expectProblem(await restore(await start(), await backupOf(tomorrow)), 'invalid_argument', { field: 'body' })
  })

  test('what began before it, on the empty store, neither reads nor writes after it', { tags: ['long'] }, async () => {
    const server = await start()
    await server.put('k', 'v')
    const file = await backupOf(server)
    const other = await start()
    expect((await other.get('/v1/kv/k')).statusCode).toBe(404) // Its absence is in the cache now.
    const { txn } = (await other.post('/v1/txn/begin', {})).json<Json>()
    expect((await other.send('PUT', `/v1/txn/${txn}/kv/k`, {}, 'stale')).statusCode).toBe(200)
    okBody(await restore(other, file))
    expectProblem(await other.get(`/v1/txn/${txn}/kv/other`), 'ts_below_safe_point')
    expectProblem(await other.post(`/v1/txn/${txn}/commit`, {}), 'ts_below_safe_point')
    expect((await other.get('/v1/kv/k')).body).toBe('v')
  })

  test('a store with a pair, a deletion or a lock is left alone', { tags: ['long'] }, async () => {
    const server = await start()
    await fill(server)
    const file = await backupOf(server)
    const put = await start()
    const commitTs = await put.put('mine', 'v')
    expectProblem(await restore(put, file), 'precondition_failed', { key: 'mine', commit_ts: commitTs })
    expectProblem(await restore(put, file, '?restart=true'), 'precondition_failed', { key: 'mine' })
    expect(await scan(put)).toMatch(/^{"key":"mine".*}\n$/)
    const deleted = await start()
    await deleted.remove('mine')
    expectProblem(await restore(deleted, file), 'precondition_failed', { key: 'mine', commit_ts: 0 })
    const locked = await start()
    await locked.lock(numberOf(await locked.ok('tso', {}), 'ts'), ['mine'], { lock_ttl: 60_000 })
    expectProblem(await restore(locked, file), 'precondition_failed', { key: 'mine', commit_ts: 0 })
  })

  test('damaged before its first pairs are whole: nothing is changed', async () => {
    const server = await start()
    await fill(server)
    const file = await backupOf(server)
    const { ends } = await open(file)
    const other = await start()
    for (const at of [0, 9, 15, 40, (ends[0] as number) + 3, (ends[0] as number) + 5000, (ends[1] as number) - 1]) {
      const damaged = Buffer.from(file)
      damaged[at] = (damaged[at] as number) ^ 4
      expectProblem(await restore(other, damaged), 'invalid_argument', { field: 'body' })
      expectProblem(await restore(other, file.subarray(0, at)), 'invalid_argument', { field: 'body' })
    }
    expectProblem(await restore(other, Buffer.alloc(0)), 'invalid_argument', { field: 'body' })
    await other.put('k', 'v') // It is in service.
  })

  test('cut off or damaged later: out of service until it is continued, from anywhere, with the same backup', {
    tags: ['long'],
  }, async () => {
    const server = await start()
    await fill(server)
    const file = await backupOf(server)
    const all = await scan(server)
    const { header, ends } = await open(file)
    const inData = (n: number): number => (ends[1] as number) + (n % (file.length - (ends[1] as number)))
    let other = await start()
    for (const [i, n] of [1, 7_919, 104_729, 299_993, 350_003, 611_953, file.length - 1].entries()) {
      const at = inData(n)
      const damaged = Buffer.from(file)
      damaged[at] = (damaged[at] as number) ^ 128
      const broken = i % 2 === 0 ? file.subarray(0, at) : damaged
      expectProblem(await restore(other, broken), 'invalid_argument', { field: 'body' })
      const status = okBody(await other.get('/v1/status'))
      expect(status['restoring']).toMatchObject({ id: header.id, ts: header.ts })
      if (i === 2) {
        await other.store.close()
        other = await start({ directory: other.directory })
      }
      for (const refused of [
        await other.get('/readyz'),
        await other.get('/v1/kv/short'),
        await other.get('/v1/kv'),
        await other.send('PUT', '/v1/kv/k', {}, 'v'),
        await other.post('/v1/txn', { ops: [{ op: 'put', key: 'k', value: 'v' }] }),
        await other.call('prewrite', { mutations: [{ op: 'put', key: 'k', value: 'v' }], primary: 'k', start_ts: 5 }),
        await other.get(URL),
      ])
        expect([refused.statusCode, refused.json<Json>()['code']]).toEqual([503, 'storage_unavailable'])
    }
    // Another backup, of other data, does not go on where this one stopped.
    const stranger = await start()
    await stranger.put('zzz', 'v')
    expectProblem(await restore(other, await backupOf(stranger)), 'precondition_failed')
    expect(okBody(await restore(other, file))).toMatchObject({ id: header.id })
    expect(await scan(other)).toBe(all)
    expect(okBody(await other.get('/v1/status'))).not.toHaveProperty('restoring')
    expect((await other.get('/readyz')).statusCode).toBe(200)
  })

  test('one at a time', { tags: ['long'] }, async () => {
    const server = await start()
    await fill(server)
    const file = await backupOf(server)
    const other = await start()
    const port = await other.listen()
    const first = request({ port, path: '/v1/admin/restore', method: 'POST' })
    const answered = once(first, 'response')
    first.write(file.subarray(0, 500_000))
    while (other.store.upkeep.restoring === undefined) await new Promise(setImmediate)
    const second = await restore(other, file)
    expect([second.statusCode, second.json<Json>()['code']]).toEqual([503, 'storage_unavailable'])
    first.end(file.subarray(500_000))
    const [answer] = (await answered) as [IncomingMessage]
    expect(answer.resume().statusCode).toBe(200)
    expect(await scan(other)).toBe(await scan(server))
  })

  test('of writes that race with its begin, none is in the store that it fills', { tags: ['long'] }, async () => {
    const server = await start()
    await fill(server)
    const file = await backupOf(server)
    for (const before of [0, 1, 3]) {
      const other = await start()
      const put = (i: number) => other.send('PUT', `/v1/kv/racing${i}`, {}, 'v')
      const early = Array.from({ length: before }, (_, i) => put(i))
      const restoring = restore(other, file)
      const late = Array.from({ length: 8 }, async (_, i) => {
        for (let turn = 0; turn < i; turn++) await new Promise(setImmediate)
        return put(before + i)
      })
      const restored = (await restoring).statusCode
      const puts = await Promise.all([...early, ...late])
      const { safe_point: end } = okBody(await other.get('/v1/status')) as { safe_point: number }
      const landed = puts
        .filter(({ statusCode }) => statusCode === 200)
        .map((answer) => numberOf(answer.json(), 'commit_ts'))
      expect(puts.filter(({ statusCode }) => statusCode !== 200).map(({ statusCode }) => statusCode)).toEqual(
        Array.from({ length: puts.length - landed.length }, () => 503),
      )
      if (restored === 200) for (const commitTs of landed) expect(commitTs).toBeGreaterThan(end)
      else expect([restored, landed.length > 0]).toEqual([412, true])
    }
  })

  test('restart=true gives up one that was cut off for another', async () => {
    const server = await start()
    await fill(server)
    const file = await backupOf(server)
    const stranger = await start()
    await stranger.put('zzz', 'v')
    const other = await start()
    expectProblem(await restore(other, file.subarray(0, -1)), 'invalid_argument')
    const wanted = await backupOf(stranger)
    okBody(await restore(other, wanted, '?restart=true'))
    expect(await scan(other)).toBe(await scan(stranger))
    expect(await other.mvcc('short')).toEqual({ lock: null, writes: [], values: [] })
    expect(await other.mvcc('long/001')).toEqual({ lock: null, writes: [], values: [] })
  })

  test('media types, limits, parameters', { tags: ['long'] }, async () => {
    const server = await start()
    await server.put('key', 'v'.repeat(300_000))
    const file = await backupOf(server)
    const other = await start({ limits: { bodyBytesMax: 1024 } })
    for (const type of ['application/json', 'application/x-www-form-urlencoded', 'text/plain'])
      expectProblem(
        await other.send('POST', '/v1/admin/restore', { 'content-type': type }, file),
        'unsupported_media_type',
      )
    const unasked = await other.send('POST', '/v1/admin/restore', { origin: 'http://elsewhere' }, file)
    expectProblem(unasked, 'unsupported_media_type')
    expectProblem(await restore(other, file, '?restart=maybe'), 'invalid_argument', { field: 'restart' })
    expectProblem(await restore(other, file, '?resume=true'), 'invalid_argument', { field: 'resume' })
    const smallValues = await start({ limits: { valueBytesMax: 1024 } })
    expectProblem(await restore(smallValues, file), 'payload_too_large', { field: 'body' })
    const smallKeys = await start({ limits: { keyBytesMax: 2 } })
    expectProblem(await restore(smallKeys, file), 'payload_too_large', { field: 'body' })
    okBody(await other.send('POST', '/v1/admin/restore', {}, file)) // Without a type; bodies have no limit here.
  })
})
