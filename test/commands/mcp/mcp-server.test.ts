import { beforeEach, describe, expect, test } from 'vitest'
import { type Connection, connect } from '../../../src/client/index.js'
import { McpServer } from '../../../src/commands/mcp/mcp-server.js'
import { READ_TOOLS, WRITE_TOOLS } from '../../../src/commands/mcp/tools.js'
import { connectTo } from '../../coordinator/support.js'
import { type TestServer, testServers } from '../../http/support.js'

const start = testServers()
const DAY_MS = 86_400_000
const TOOLS = { ...READ_TOOLS, ...WRITE_TOOLS }
let server: TestServer
let db: Connection
/** Until a test has a server: for what needs none. */
let mcp = new McpServer(connect('http://127.0.0.1:1'), TOOLS)

async function startServer(): Promise<() => Promise<void>> {
  server = await start()
  db = await connectTo(server)
  mcp = new McpServer(db, TOOLS)
  return () => db.close()
}

const answerTo = (message: unknown) => mcp.answer(Buffer.from(JSON.stringify(message)))

interface Result {
  readonly content: readonly [{ readonly type: 'text'; readonly text: string }]
  readonly isError?: boolean
}

async function resultOf(name: string, args?: object): Promise<Result> {
  const answer = await answerTo({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } })
  return (answer as { readonly result: Result }).result
}

/** The lines of JSON that a tool answers. */
async function call(name: string, args?: object): Promise<unknown[]> {
  const { content, isError } = await resultOf(name, args)
  expect(isError, content[0].text).toBeUndefined()
  return content[0].text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line)]))
}

async function failureOf(name: string, args?: object): Promise<string> {
  const { content, isError } = await resultOf(name, args)
  expect(isError).toBe(true)
  return content[0].text
}

describe('messages', () => {
  const failed = (id: unknown, code: number) => ({ jsonrpc: '2.0', id, error: { code, message: expect.any(String) } })

  test.each([
    ['2025-11-25', '2025-11-25'],
    ['2024-11-05', '2024-11-05'],
    ['1999-01-01', '2025-11-25'],
    [undefined, '2025-11-25'],
  ])('a client that asks for revision %s gets %s', async (protocolVersion, revision) => {
    expect(await answerTo({ jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion } })).toMatchObject({
      id: 0,
      result: { protocolVersion: revision, capabilities: { tools: {} }, serverInfo: { name: 'perkv' } },
    })
  })

  test.each([
    [
      { jsonrpc: '2.0', id: 'a', method: 'ping' },
      { jsonrpc: '2.0', id: 'a', result: {} },
    ],
    [{ jsonrpc: '2.0', method: 'notifications/initialized' }, undefined],
    [{ jsonrpc: '2.0', method: 'unknown/notification', params: 5 }, undefined],
    [{ jsonrpc: '2.0', id: 1, result: {} }, undefined],
    [{ jsonrpc: '2.0', id: 1, method: 'resources/list' }, failed(1, -32601)],
    [{ jsonrpc: '2.0', id: 1, method: 'toString' }, failed(1, -32601)],
    [{ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'toString' } }, failed(1, -32602)],
    [{ jsonrpc: '2.0', id: 1, method: 'tools/call' }, failed(1, -32602)],
    [{ jsonrpc: '2.0', id: null, method: 'ping' }, failed(null, -32600)],
    [{ id: 1, method: 'ping' }, failed(1, -32600)],
    [5, failed(null, -32600)],
    [null, failed(null, -32600)],
    [[], failed(null, -32600)],
    [
      [{ jsonrpc: '2.0', id: 1, method: 'ping' }, { jsonrpc: '2.0', method: 'x' }, 5],
      [{ id: 1 }, failed(null, -32600)],
    ],
    [[{ jsonrpc: '2.0', method: 'x' }], undefined],
  ])('%j', async (message, answer) => {
    const given = await answerTo(message)
    if (answer === undefined) expect(given).toBeUndefined()
    else expect(given).toMatchObject(answer)
  })

  test.each([['{"jsonrpc":'], [Buffer.from([0x22, 0xff, 0x22])]])('a line that is no JSON: %s', async (line) => {
    expect(await mcp.answer(Buffer.from(line))).toEqual(failed(null, -32700))
  })
})

describe('arguments', () => {
  test.each([
    ['get', {}, /"key" is missing/],
    ['get', { kye: 'a', key: 'a' }, /no argument "kye": did you mean key\?/],
    ['get', { key: 5 }, /"key" must have the type string/],
    ['get', { key: '' }, /KEY is empty/],
    ['get', { key: 'k', raw: true }, /no argument "raw"/],
    ['get', { key: 'k', toString: 1 }, /no argument "toString"/],
    ['get', { key: 'a', base64: true }, /KEY is not base64/],
    ['scan', { limit: 0 }, /limit must be an integer from 1/],
    ['scan', { limit: 1.5 }, /"limit" must have the type integer/],
    ['scan', { reverse: 'yes' }, /"reverse" must have the type boolean/],
    ['scan', { prefix: 'a', start: 'b' }, /--prefix does not go with/],
    ['transaction', { body: '/etc/hostname' }, /"body" must have the type object/],
    ['transaction', { body: null }, /"body" must have the type object/],
    ['put', { key: 'a', value: 'b', ttl: 'soon' }, /ttl must be a time such as/],
  ])('%s of %j is refused', async (name, args, message) => {
    expect(await failureOf(name, args)).toMatch(message)
  })

  test('each tool describes itself and its arguments', async () => {
    const answer = await answerTo({ jsonrpc: '2.0', id: 1, method: 'tools/list' })
    const { tools } = (answer as { result: { tools: { name: string; description: string; inputSchema: object }[] } })
      .result
    expect(tools.find(({ name }) => name === 'scan')).toMatchObject({
      inputSchema: {
        type: 'object',
        properties: {
          prefix: { type: 'string' },
          limit: { type: 'integer', description: expect.stringContaining('default 50') },
          'keys-only': { type: 'boolean' },
        },
        required: [],
        additionalProperties: false,
      },
      annotations: { readOnlyHint: true, openWorldHint: false },
    })
    for (const { description } of tools) expect(description).not.toMatch(/[Pp]rints|exit code|stdin/)
  })
})

describe('tools', () => {
  beforeEach(startServer)

  test('what put, delete and transaction write is read by get, scan, count and history', async () => {
    const [put] = await call('put', { key: 'a/1', value: '-' })
    expect(await call('get', { key: 'a/1' })).toEqual([{ key: 'a/1', value: '-', ...(put as object) }])
    const ops = [
      { op: 'put', key: { base64: '/wA=' }, value: { base64: 'AP8=' } },
      { op: 'increment', key: 'a/2' },
    ]
    const checks = [{ key: 'a/1', value: '-' }]
    const [done] = await call('transaction', { body: { checks, ops } })
    expect(done).toMatchObject({ results: [{}, { value: '1' }] })
    expect(await failureOf('transaction', { body: { op: [] } })).toContain('did you mean ops?')
    expect(await failureOf('transaction', { body: { checks: [{ key: 'a/1', exists: false }], ops } })).toMatch(
      /^\{"code":"precondition_failed","meaning":.*"remedy":.*"detail":/,
    )
    expect(await call('scan', { prefix: 'a/' })).toMatchObject([{ key: 'a/1' }, { key: 'a/2', value: '1' }])
    expect(await call('scan', { start: 'a/2', 'keys-only': true, limit: 2 })).toMatchObject([
      { key: 'a/2' },
      { key: { base64: '/wA=' } },
    ])
    expect(await call('count')).toMatchObject([{ count: 3 }])
    expect(await call('get', { key: '/wA=', base64: true })).toMatchObject([{ value: { base64: 'AP8=' } }])
    await call('delete', { key: 'a/1', 'if-match': (put as { commit_ts: number }).commit_ts })
    expect(await call('get', { key: 'a/1' })).toEqual([{ found: false }])
    expect(await call('get', { key: 'a/1', ts: (done as { commit_ts: number }).commit_ts })).toMatchObject([
      { value: '-' },
    ])
    const versions = await call('history', { key: 'a/1' })
    expect(versions).toMatchObject([
      { op: 'delete', time: expect.any(String) },
      { op: 'put', value: '-', ...(put as object) },
    ])
    expect(await call('history', { key: 'a/1', limit: 1 })).toEqual(versions.slice(0, 1))
    expect(await call('status')).toMatchObject([{ version: expect.any(String) }])
  })

  test('a long value is cut, between characters, with its length', async () => {
    await db.put('text', 'ä'.repeat(100_000))
    await db.put('bytes', Buffer.alloc(100_000, 255))
    expect(await call('get', { key: 'text' })).toMatchObject([{ value: { text: 'ä'.repeat(2048), bytes: 200_000 } }])
    expect(await call('get', { key: 'bytes' })).toMatchObject([
      { value: { base64: Buffer.alloc(4096, 255).toString('base64'), bytes: 100_000 } },
    ])
    expect(await call('history', { key: 'text' })).toMatchObject([{ value: { bytes: 200_000 } }])
  })

  test('an answer that would be too long ends early, and says so', async () => {
    const value = 'v'.repeat(4000)
    await db.atomic({ ops: Array.from({ length: 100 }, (_, i) => ({ op: 'put', key: `k${i}`, value })) })
    const { content, isError } = await resultOf('scan', { limit: 100 })
    expect(isError).toBeUndefined()
    expect(content[0].text.length).toBeLessThan(132_000)
    expect(content[0].text).toMatch(/… \(the rest is left out: ask for less\)$/)
  })
})

describe('explanations', () => {
  beforeEach(startServer)

  /** A transaction that has locked two keys, and has a day for the rest. */
  async function locked(): Promise<{ start_ts: number; commit: (key: string) => Promise<unknown> }> {
    const start_ts = (await db.snapshot()).ts
    const mutations = ['first', 'second'].map((key) => ({ op: 'put', key, value: 'v' }))
    const body = { mutations, primary: 'first', start_ts, lock_ttl: DAY_MS }
    expect((await server.post('/v1/percolator/prewrite', body)).statusCode).toBe(200)
    const commit = async (key: string) => {
      const commit_ts = (await db.snapshot()).ts
      await server.post('/v1/percolator/commit', { keys: [key], start_ts, commit_ts })
      return commit_ts
    }
    return { start_ts, commit }
  }
  const transactionOf = async (key: string) => {
    const [line] = await call('explain_locks', { prefix: key })
    return (line as { transaction: object }).transaction
  }

  test('of locks whose transaction runs, and then has committed', async () => {
    const { start_ts, commit } = await locked()
    const running = { start_ts, began: expect.any(String), primary: 'first', state: 'running' }
    const transaction = { ...running, ttl_left_ms: expect.any(Number), end: expect.stringContaining('its owner') }
    expect(await call('explain_locks')).toEqual([
      { key: 'first', type: 'put', transaction },
      { key: 'second', type: 'put', transaction },
    ])
    const commit_ts = await commit('first')
    expect(await transactionOf('second')).toMatchObject({ state: 'committed', commit_ts })
    expect(await call('get', { key: 'second' })).toMatchObject([{ value: 'v', commit_ts }])
    expect(await call('explain_locks')).toEqual([])
  })

  test('of a lock whose transaction was rolled back, and of one whose primary is not there', async () => {
    const { start_ts } = await locked()
    await server.post('/v1/percolator/rollback', { keys: ['first'], start_ts })
    expect(await transactionOf('second')).toMatchObject({ state: 'rolled back' })
    const early = { mutations: [{ op: 'put', key: 'early', value: 'v' }], primary: 'late', lock_ttl: DAY_MS }
    await server.post('/v1/percolator/prewrite', { ...early, start_ts: (await db.snapshot()).ts })
    expect(await transactionOf('early')).toMatchObject({ state: 'running', end: expect.stringContaining('on the way') })
  })

  test('of locks that nobody will end, with and without async commit', async () => {
    const start_ts = 1_000_000
    for (const key of ['async', 'plain']) {
      const way = key === 'async' ? { use_async_commit: true, secondaries: [] } : {}
      const mutations = [{ op: 'put', key, value: 'v' }]
      await server.post('/v1/percolator/prewrite', { mutations, primary: key, start_ts, lock_ttl: 1, ...way })
    }
    expect(await transactionOf('plain')).toMatchObject({
      state: 'abandoned',
      ttl_left_ms: 0,
      end: expect.stringContaining('rolls'),
    })
    expect(await transactionOf('async')).toMatchObject({
      state: 'abandoned',
      end: expect.stringContaining('if all are'),
    })
  })

  test('of a lock that is in the way of a program', async () => {
    const { start_ts, commit } = await locked()
    const problem = (await server.post('/v1/percolator/get', { key: 'second', ts: start_ts + 1 })).json()
    const explained = { code: 'key_locked', meaning: expect.any(String), remedy: expect.any(String) }
    const other = { start_ts, primary: 'first' }
    expect(await call('explain_error', { problem })).toMatchObject([
      { ...explained, other_transactions: [{ ...other, state: 'running' }] },
    ])
    const commit_ts = await commit('first')
    expect(await call('explain_error', { problem })).toMatchObject([
      { ...explained, other_transactions: [{ ...other, state: 'committed', commit_ts }] },
    ])
  })

  test('of a write conflict: what its reason means, and when the other has committed', async () => {
    const start_ts = (await db.snapshot()).ts
    const { commitTs } = await db.put('k', 'theirs')
    const mutations = [{ op: 'put', key: 'k', value: 'mine' }]
    const answer = await server.post('/v1/percolator/prewrite', { mutations, primary: 'k', start_ts })
    expect(await call('explain_error', { problem: answer.json() })).toMatchObject([
      {
        code: 'write_conflict',
        optimistic: { meaning: expect.any(String), remedy: expect.any(String) },
        other_transactions: [{ state: 'committed', commit_ts: commitTs }],
      },
    ])
  })

  test('of a transaction whose primary the token does not reach', async () => {
    const tokens = 'rw all-keys-long-enough\nro second-long-enough prefix=second\n'
    const guarded = await start({ tokens })
    const authorization = { authorization: 'Bearer all-keys-long-enough' }
    const mutations = ['first', 'second'].map((key) => ({ op: 'put', key, value: 'v' }))
    const body = { mutations, primary: 'first', start_ts: 1_000_000 }
    expect((await guarded.post('/v1/percolator/prewrite', body, authorization)).statusCode).toBe(200)
    const reader = await connectTo(guarded, { token: 'second-long-enough' })
    mcp = new McpServer(reader, READ_TOOLS)
    const problem = { code: 'key_locked', lock: { primary: 'first', start_ts: 1_000_000, ttl: 1 } }
    expect(await transactionOf('second')).toMatchObject({ primary: '', state: 'unknown' })
    expect(await call('explain_error', { problem })).toMatchObject([{ other_transactions: [{ state: 'unknown' }] }])
    await reader.close()
  })

  test('of what is no error of PerKV', async () => {
    const problem = { code: 'toString', lock: 5, locks: [null, { primary: '' }] }
    const explained = { code: 'toString', meaning: 'PerKV has no such code', other_transactions: [] }
    expect(await call('explain_error', { problem })).toEqual([explained])
  })
})
