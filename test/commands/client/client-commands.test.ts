import { beforeEach, describe, expect, test } from 'vitest'
import type { Connection } from '../../../src/client/index.js'
import { CLIENT_COMMANDS } from '../../../src/commands/client/client-commands.js'
import { COMMANDS } from '../../../src/commands/command-table.js'
import { UsageError } from '../../../src/server/flags.js'
import { connectTo } from '../../coordinator/support.js'
import { type Json, type TestServer, testServers } from '../../http/support.js'
import { linesOf, parsed, runCommand } from './run-command.js'

const start = testServers()
let server: TestServer
let db: Connection

beforeEach(async () => {
  server = await start()
  db = await connectTo(server)
  return () => db.close()
})

const shownOn = async (columns: number, ...args: readonly string[]): Promise<string> =>
  (await runCommand(db, args, { isTerminal: true, columns })).output.toString()

test('every command of a shell is one of the command line', () => {
  expect([...COMMANDS.keys()]).toEqual(expect.arrayContaining(Object.keys(CLIENT_COMMANDS)))
})

describe('in a pipe', () => {
  test('put, get and del', async () => {
    const [put] = await linesOf(db, ['put', 'k', 'v'])
    expect(put).toEqual({ commit_ts: expect.any(Number) })
    expect(await linesOf(db, ['get', 'k'])).toEqual([{ key: 'k', value: 'v', ...(put as object) }])
    expect((await runCommand(db, ['get', 'k', '--raw'])).output.toString()).toBe('v')
    expect(await linesOf(db, ['put', 'k', '-'], { stdin: 'from stdin\n' })).toHaveLength(1)
    expect(await db.get('k')).toBe('from stdin\n')
    expect(await linesOf(db, ['del', 'k'])).toEqual([{ commit_ts: expect.any(Number) }])
    expect(await runCommand(db, ['get', 'k'])).toMatchObject({ outcome: 'absent', output: Buffer.alloc(0), notes: [] })
  })

  test('an empty value is a value', async () => {
    await linesOf(db, ['put', 'k', ''])
    expect(await linesOf(db, ['get', 'k'])).toMatchObject([{ value: '' }])
  })

  test('keys and values that are not UTF-8 go in and come out', async () => {
    const key = { base64: '/wA=' }
    await linesOf(db, ['put', '--base64', key.base64, 'AAH/'])
    const pair = { key, value: { base64: 'AAH/' } }
    expect(await linesOf(db, ['get', '--base64', key.base64])).toMatchObject([pair])
    expect(await linesOf(db, ['scan', '--base64', '--prefix', '/w=='])).toMatchObject([pair])
    const check = JSON.stringify({ checks: [pair], ops: [{ op: 'get', key }] })
    expect(await linesOf(db, ['txn', '-'], { stdin: check })).toMatchObject([
      { results: [{ found: true, value: pair.value, commit_ts: expect.any(Number) }] },
    ])
    expect(await linesOf(db, ['mvcc', '--base64', key.base64])).toMatchObject([
      { writes: [{ short_value: pair.value }] },
    ])
    const stop = new AbortController()
    const watched = linesOf(db, ['watch', '--base64', key.base64], {
      signal: stop.signal,
      onOutput: () => stop.abort(),
    })
    expect(await watched).toMatchObject([pair])
    await linesOf(db, ['del', '--base64', key.base64])
    expect(await linesOf(db, ['count'])).toMatchObject([{ count: 0 }])
  })

  test('conditions of put and del', async () => {
    const { commitTs } = await db.put('k', 'v')
    await expect(runCommand(db, ['put', 'k', 'w', '--if-absent'])).rejects.toMatchObject({
      code: 'precondition_failed',
    })
    await linesOf(db, ['put', 'k', 'w', '--if-match', String(commitTs)])
    await expect(runCommand(db, ['del', 'k', '--if-match', String(commitTs)])).rejects.toMatchObject({
      code: 'precondition_failed',
    })
    const once = await linesOf(db, ['del', 'k', '--idempotency-key', 'x'])
    expect(await linesOf(db, ['del', 'k', '--idempotency-key', 'x'])).toEqual(once)
  })

  test('scan and count', async () => {
    for (const key of ['a/1', 'a/2', 'b/1']) await db.put(key, key.toUpperCase())
    const { commitTs } = await db.put('b/2', 'B/2')
    const keys = async (...args: string[]) =>
      (await linesOf(db, ['scan', ...args])).map((line) => (line as { key: string }).key)
    expect(await linesOf(db, ['scan', '--prefix', 'b/'])).toEqual([
      { key: 'b/1', value: 'B/1', commit_ts: expect.any(Number) },
      { key: 'b/2', value: 'B/2', commit_ts: commitTs },
    ])
    expect(await keys('--prefix', 'a/', '--limit', '1')).toEqual(['a/1'])
    expect(await keys('--start', 'a/2', '--end', 'b/2', '--reverse')).toEqual(['b/1', 'a/2'])
    expect(await keys('--ts', String(commitTs - 1))).toEqual(['a/1', 'a/2', 'b/1'])
    expect(await linesOf(db, ['scan', '--keys-only', '--prefix', 'b/2'])).toEqual([{ key: 'b/2', commit_ts: commitTs }])
    expect((await runCommand(db, ['scan', '--raw', '--prefix', 'a/'])).output.toString()).toBe('a/1\tA/1\na/2\tA/2\n')
    expect(await linesOf(db, ['count', '--prefix', 'b/'])).toEqual([{ count: 2, ts: expect.any(Number) }])
    const at = Date.UTC(1990) * 2048 + 2047
    expect(await linesOf(db, ['count', '--at', '1990-01-01T00:00:00Z'])).toEqual([{ count: 0, ts: at }])
  })

  test('txn prints the answer of the route', async () => {
    const body = {
      ops: [
        { op: 'increment', key: 'n', by: 2 },
        { op: 'scan', prefix: 'n', keys_only: true },
      ],
    }
    const [answer] = await linesOf(db, ['txn', '-'], { stdin: JSON.stringify(body) })
    expect(answer).toEqual({
      start_ts: expect.any(Number),
      commit_ts: expect.any(Number),
      results: [{ value: '2' }, { pairs: [{ key: 'n' }] }],
    })
    const refused = runCommand(db, ['txn', '-'], { stdin: '{"checks": [{"key": "n", "exists": false}], "ops": []}' })
    await expect(refused).rejects.toMatchObject({ code: 'precondition_failed' })
    await expect(runCommand(db, ['txn', '-'], { stdin: '{"opps": []}' })).rejects.toThrow(/opps is not a known field/)
    for (const stdin of ['', '{', '[]', 'null', '\xff'])
      await expect(runCommand(db, ['txn', '-'], { stdin: Buffer.from(stdin, 'latin1') })).rejects.toThrow(
        /^stdin is not/,
      )
    await expect(runCommand(db, ['txn', '-'], { stdin: '['.repeat(1_000_000) })).rejects.toThrow()
  })

  test('watch prints the present value and each that it sees, whatever is locked elsewhere', async () => {
    const { startTs } = await db.begin()
    await server.post('/v1/percolator/prewrite', {
      mutations: [{ op: 'put', key: 'elsewhere', value: 'v' }],
      primary: 'elsewhere',
      start_ts: startTs,
      lock_ttl: 600_000,
    })
    await db.put('k', '1')
    const stop = new AbortController()
    const writes = [() => db.put('k', '2'), () => db.delete('k'), () => db.put('k', '3'), () => stop.abort()]
    const writing: unknown[] = []
    const watching = runCommand(db, ['watch', 'k'], {
      signal: stop.signal,
      onOutput: (output) => {
        if (parsed(output).length > writing.length) writing.push(writes[writing.length]?.())
      },
    })
    const lines = parsed((await watching).output.toString()) as { key: string; value: string | null }[]
    await Promise.all(writing)
    expect(lines.map(({ key, value }) => [key, value])).toEqual([
      ['k', '1'],
      ['k', '2'],
      ['k', null],
      ['k', '3'],
    ])
  })

  test('changes prints the lines of the route', async () => {
    const first = await db.put('a/1', 'x')
    await db.delete('a/1')
    await db.put('a/2', 'y')
    const route = await server.get(`/v1/changes?prefix=a/&since_ts=1&wait_ms=0&old_values=true`, {
      accept: 'application/x-ndjson',
    })
    const ofRoute = parsed(route.body).filter((line) => (line as { type: string }).type === 'txn')
    expect(await linesOf(db, ['changes', '--prefix', 'a/', '--since', '1', '--old-values', '--once'])).toEqual(ofRoute)
    expect(ofRoute).toHaveLength(3)
    expect(await linesOf(db, ['changes', '--since', String(first.commitTs), '--once', '--keys-only'])).toMatchObject([
      { type: 'txn', changes: [{ key: 'a/1', op: 'delete' }] },
      { type: 'txn', changes: [{ key: 'a/2', op: 'put' }] },
    ])
    expect(await linesOf(db, ['changes', '--prefix', 'a/', '--snapshot', '--once'])).toEqual([
      { type: 'pair', key: 'a/2', value: 'y', commit_ts: expect.any(Number) },
      { type: 'snapshot_end', ts: expect.any(Number) },
    ])
    const resolved = await linesOf(db, ['changes', '--once', '--resolved'])
    expect(resolved.at(-1)).toEqual({ type: 'resolved', resolved_ts: expect.any(Number) })
  })

  test('status, locks, mvcc and observers print what the routes answer', async () => {
    const { startTs } = await db.begin()
    await server.post('/v1/percolator/prewrite', {
      mutations: [{ op: 'put', key: 'k', value: 'v' }],
      primary: 'k',
      start_ts: startTs,
      lock_ttl: 60_000,
    })
    await db.observers.put('words', { prefix: 'doc/' })
    const statusOf = (line: unknown) => Object.keys(line as object).sort()
    const [status] = await linesOf(db, ['status'])
    expect(statusOf(status)).toEqual(statusOf((await server.get('/v1/status')).json()))
    const locks = await server.post('/v1/percolator/scan_lock', { max_ts: startTs })
    expect(await linesOf(db, ['locks'])).toEqual(locks.json<Json>().locks)
    expect(await linesOf(db, ['locks', '--prefix', 'x'])).toEqual([])
    const mvcc = await server.post('/v1/percolator/mvcc_get_by_key', { key: 'k' })
    expect(await linesOf(db, ['mvcc', 'k'])).toEqual([mvcc.json()])
    expect(await linesOf(db, ['observers'])).toEqual((await server.get('/v1/observers')).json<Json>().observers)
    expect(await linesOf(db, ['observers', 'words'])).toEqual([(await server.get('/v1/observers/words')).json()])
    await expect(runCommand(db, ['observers', 'nix'])).rejects.toMatchObject({ code: 'not_found' })
  })

  test('leases prints who holds what, as the routes answer', { tags: ['long'] }, async () => {
    for (const name of ['jobs/2', 'jobs/1', 'leader']) await db.lease(name, { ttlMs: 60_000, holder: 'me' })
    // Expiries are of a time that passes.
    const held = async (url: string) => (await server.get(url)).json()
    const { leases } = await held('/v1/leases')
    const isHeld = (one: Json) => ({ ...one, expires_at: expect.any(String) })
    expect(await linesOf(db, ['leases'])).toEqual(leases.map(isHeld))
    expect(leases.map(({ name }: Json) => name)).toEqual(['jobs/1', 'jobs/2', 'leader'])
    expect(await linesOf(db, ['leases', '--prefix', 'jobs/'])).toMatchObject([{ name: 'jobs/1' }, { name: 'jobs/2' }])
    const one = { ...(await held('/v1/leases/jobs%2F1')), expires_at: expect.any(String) }
    expect(await linesOf(db, ['leases', 'jobs/1'])).toEqual([one])
    await expect(runCommand(db, ['leases', 'nix'])).rejects.toMatchObject({ code: 'not_found' })
    expect(await shownOn(100, 'leases')).toMatch(
      /^name {4}fence {13}ttl_ms {2}expires_at {16}holder\njobs\/1 {2}\d+ {2}60000 {3}20\S+Z {2}me\n/,
    )
  })

  test('observers NAME --parked has a line per key', async () => {
    await db.observers.put('words', { prefix: 'doc/' }, { maxAttempts: 1 })
    await db.put('doc/1', 'x')
    const claims = await db.observers.claim('words', { waitMs: 5000 })
    await db.observers.release(
      'words',
      claims.map((claim) => ({ ...claim, error: 'no\ntitle' })),
    )
    expect(await linesOf(db, ['observers', 'words', '--parked'])).toEqual([
      { key: 'doc/1', commit_ts: expect.any(Number), attempts: 1, error: 'no\ntitle', parked_at: expect.any(String) },
    ])
    expect(await shownOn(120, 'observers', 'words', '--parked')).toContain('no\\ntitle')
  })

  test('an observer is paused, and its parked keys are run again or passed over', async () => {
    await db.observers.put('words', { prefix: 'doc/' }, { maxAttempts: 1 })
    const park = async (...keys: string[]) => {
      for (const key of keys) await db.put(key, 'x')
      for (let left = keys.length; left > 0; ) {
        const claims = await db.observers.claim('words', { waitMs: 5000, limit: 10 })
        await db.observers.release(
          'words',
          claims.map((claim) => ({ ...claim, error: 'no' })),
        )
        left -= claims.length
      }
    }
    await park('doc/1', 'doc/2', 'doc/3')
    expect(await linesOf(db, ['observers', 'words', '--pause'])).toMatchObject([{ state: 'paused', parked: 3 }])
    expect(await linesOf(db, ['observers', 'words', '--resume'])).toMatchObject([{ state: 'running' }])
    expect(await linesOf(db, ['observers', 'words', '--skip', 'doc/1', 'doc/nix'])).toEqual([{ skipped: 1 }])
    expect(await linesOf(db, ['observers', 'words', '--retry', '--base64', 'ZG9jLzI='])).toEqual([{ retried: 1 }])
    expect(await shownOn(80, 'observers', 'words', '--retry')).toBe('retried  1\n')
    await expect(runCommand(db, ['observers', 'nix', '--pause'])).rejects.toMatchObject({ code: 'not_found' })
  })
})

describe('on a terminal', () => {
  test('nothing that is stored reaches the terminal as a command to it', async () => {
    await db.put('k\u001b[2J', '\u001b]0;title\u0007\r\n\u202e')
    for (const args of [
      ['get', 'k\u001b[2J'],
      ['scan'],
      ['mvcc', 'k\u001b[2J'],
      ['changes', '--since', '1', '--once'],
    ]) {
      const output = await shownOn(100, ...args)
      expect(output).toContain('\\x1b]0;title\\x07\\r\\n\\u{202e}')
      for (const character of '\u001b\u0007\r\u202e') expect(output).not.toContain(character)
    }
  })

  test('a pair and its time; a table that fits the terminal', async () => {
    const { commitTs } = await db.put('hello', 'world')
    expect(await shownOn(80, 'get', 'hello')).toMatch(
      new RegExp(`^key {8}hello\nvalue {6}world\ncommit_ts {2}${commitTs} {2}20..-..-..T..:..:..\\....Z\n$`),
    )
    await db.put('hello', 'x'.repeat(1000))
    const [header, row, ...rest] = (await shownOn(60, 'scan')).split('\n')
    expect(header).toBe('key    commit_ts         value')
    expect(row).toMatch(/^hello {2}\d{16} {2}x+…$/)
    expect(row).toHaveLength(60)
    expect(rest).toEqual([''])
    expect(await shownOn(60, 'count')).toMatch(/^count {2}1\nts {5}\d+ {2}20\S+Z\n$/)
    expect(await shownOn(60, 'locks')).toBe('key  type  start_ts  began  ttl_ms  primary\n')
    expect(await shownOn(60, 'status')).toMatch(/^overload\.requests +\d+$/m)
    expect(parsed(await shownOn(60, 'count', '--json'))).toMatchObject([{ count: 1 }])
  })

  test('mvcc draws the columns of the paper, newest first', async () => {
    const first = await db.put('k', 'old')
    await db.put('k', 'x'.repeat(300))
    const rows = (await shownOn(400, 'mvcc', 'k')).trimEnd().split('\n')
    expect(rows).toHaveLength(5)
    expect(rows[0]).toMatch(/^timestamp +lock +write +data$/)
    expect(rows[1]).toMatch(/^\d+ +put @ \d+$/)
    expect(rows[2]).toMatch(/^\d+ +x{300}$/)
    expect(rows[3]).toMatch(new RegExp(`^${first.commitTs} +put @ \\d+$`))
    expect(rows[4]).toMatch(/^\d+ +old$/)
  })
})

describe('in a transaction of the shell', () => {
  test('get, put, del and scan see its writes, which nobody else sees before the commit', async () => {
    await db.put('a', '1')
    const txn = await db.begin()
    const lines = (...args: string[]) => linesOf(db, args, { txn })
    expect(await lines('put', 'b', '2')).toEqual([{}])
    expect(await lines('del', 'a')).toEqual([{}])
    expect(await lines('get', 'b')).toEqual([{ key: 'b', value: '2' }])
    expect(await runCommand(db, ['get', 'a'], { txn })).toMatchObject({ outcome: 'absent' })
    expect(await lines('scan')).toEqual([{ key: 'b', value: '2' }])
    expect(await linesOf(db, ['scan'])).toMatchObject([{ key: 'a' }])
    for (const args of [
      ['put', 'b', '2', '--if-absent'],
      ['del', 'b', '--if-match', '5'],
      ['get', 'b', '--ts', '5'],
      ['scan', '--ts', '5'],
    ])
      await expect(runCommand(db, args, { txn })).rejects.toThrow(UsageError)
    await txn.commit()
    expect(await linesOf(db, ['scan'])).toMatchObject([{ key: 'b' }])
  })
})

test.each([
  [['get', ''], /KEY is empty/],
  [['get'], /KEY is missing/],
  [['get', 'k', '--raw', '--json'], /--raw does not go with --json/],
  [['get', 'k', '--at', 'yesterday'], /--at must be a time/],
  [['get', 'k', '--at', '2026-11-31T09:00:00Z'], /--at must be a time/],
  [['get', 'k', '--at', '2026-02-29T09:00+01:00'], /--at must be a time/],
  [['get', 'k', '--at', '2026-11-23T04:00:00Z', '--ts', '5'], /--ts does not go with --at/],
  [['get', '--base64', 'k'], /KEY is not base64/],
  [['put', 'k', 'v', '--if-absent', '--if-match', '5'], /--if-match does not go with --if-absent/],
  [['put', 'k', 'v', '--if-match', 'x'], /--if-match must be an integer/],
  [['scan', '--limit', '0'], /--limit must be an integer/],
  [['scan', '--prefix', 'a', '--end', 'b'], /--prefix does not go with/],
  [['changes', '--since', '1', '--snapshot'], /--snapshot does not go with --since/],
  [['changes', '--consumer', 'c', '--prefix', 'p'], /--consumer has its own range/],
  [['observers', '--parked'], /--parked needs the NAME/],
  [['observers', 'a', '--pause', '--resume'], /--pause does not go with --resume/],
  [['observers', 'a', '--skip'], /--skip needs each KEY/],
  [['observers', 'a', 'k', '--pause'], /a KEY goes with --retry or --skip/],
  [['leases', 'a', '--prefix', 'a'], /--prefix does not go with NAME/],
  [['leases', 'a b'], /the name of a lease must/],
])('%j is used wrongly', async (args, message) => {
  const run = async () => runCommand(db, args)
  await expect(run()).rejects.toThrow(UsageError)
  await expect(run()).rejects.toThrow(message)
})
