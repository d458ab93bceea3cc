/**
 * Has a built PerKV of storage format 6 write a directory, kills it, and writes down how the same PerKV answers from a copy afterwards:
 * `node write-format-6.mjs CLI DIRECTORY ANSWERS`. Every later PerKV must give these answers.
 */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const [cli, directory, answersFile] = process.argv.slice(2)
const DAY_MS = 86_400_000
let url = ''

async function serve(data) {
  const flags = ['--port', '0', '--data', data, '--gc-life-time', '0', '--log-level', 'warn']
  const server = spawn(process.execPath, [cli, 'serve', ...flags], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [line] = await once(createInterface({ input: server.stdout }), 'line')
  url = /http:\/\/[\d.:]+/.exec(line)[0]
  return async (signal) => {
    server.kill(signal)
    await once(server, 'exit')
  }
}

async function send(method, path, body, headers = {}) {
  const isJson = typeof body === 'object' && !(body instanceof Uint8Array)
  const response = await fetch(url + path, {
    method,
    headers: { 'content-type': isJson ? 'application/json' : 'application/x-www-form-urlencoded', ...headers },
    ...(body === undefined ? {} : { body: isJson ? JSON.stringify(body) : body }),
  })
  return { response, text: await response.text() }
}

async function ok(method, path, body, headers) {
  const { response, text } = await send(method, path, body, headers)
  assert(response.ok, `${method} ${path}: ${text}`)
  return JSON.parse(text)
}

const put = async (key, value) => (await ok('PUT', `/v1/kv/${key}`, value)).commit_ts
const txn = (body, headers) => ok('POST', '/v1/txn', body, headers)
const percolator = (call, body) => ok('POST', `/v1/percolator/${call}`, body)
const tso = async () => (await percolator('tso', {})).ts
const puts = (keys) => keys.map((key) => ({ op: 'put', key, value: `new ${key}` }))

/** What a client leaves behind that dies after its prewrite. */
async function dieAfterPrewrite(keys, more = {}) {
  const start_ts = await tso()
  await percolator('prewrite', { mutations: puts(keys), primary: keys[0], start_ts, lock_ttl: 1, ...more })
  return start_ts
}

async function claim(observer) {
  const { notifications } = await ok('POST', `/v1/observers/${observer}/claim`, { worker: 'w', wait_ms: 5000 })
  return notifications[0]
}

rmSync(directory, { recursive: true, force: true })
let stop = await serve(directory)
await percolator('gc', { safe_point: 3676000000000002 })
const since = await tso()

// Versions, also old and deleted ones, a removed range, values of every length, bytes.
const red = await put('apple', 'red')
const yellow = await put('pear', 'yellow')
const green = await put('apple', 'green')
await ok('DELETE', '/v1/kv/pear')
const { ts: pinned } = await ok('POST', '/v1/admin/pins', { ttl_ms: 30 * DAY_MS })
await put('range/a', '1')
await put('range/b', '2')
await percolator('delete_range', { start: 'range/a', end: 'range/b' })
await put('long', 'x'.repeat(20_000))
await put('empty', '')
await put('%00%ff', new Uint8Array([0, 255, 10]))
await txn({ ops: Array.from({ length: 12 }, (_, i) => ({ op: 'put', key: `many/${i + 10}`, value: `value ${i}` })) })

// An acknowledged, a waiting and a parked key of an observer, and a consumer that has read a part of its range.
await ok('PUT', '/v1/observers/words', { prefix: 'doc/', max_attempts: 1 })
await ok('PUT', '/v1/consumers/copy', { prefix: 'doc/' })
await put('doc/bad', 'unreadable')
const bad = await claim('words')
await ok('POST', '/v1/observers/words/release', { claims: [{ ...only(bad), error: 'no title' }] })
await put('doc/done', 'to be')
const done = await claim('words')
await txn({ acks: [{ observer: 'words', ...only(done) }], ops: [{ op: 'put', key: 'count/done', value: '2' }] })
const page = await ok('GET', '/v1/consumers/copy/changes')
await ok('POST', '/v1/consumers/copy/ack', { ts: page.next_ts })
await put('doc/waiting', 'or not')

// A clean end, so that a part of it is in a table and the rest in the log.
await stop('SIGTERM')
stop = await serve(directory)
await put('apple', 'golden')
await ok('PUT', '/v1/kv/once', '1', { 'idempotency-key': 'put once' })
const counted = { ops: [{ op: 'increment', key: 'count', by: 1 }] }
await txn(counted, { 'idempotency-key': 'count once' })
const rolledBack = await dieAfterPrewrite(['gone'])
await percolator('rollback', { keys: ['gone'], start_ts: rolledBack })

// Clients that died: before the commit, in it, after all keys of an async commit, and one whose lock still lives.
for (const key of ['dead/1', 'half/1', 'async/1', 'held/1']) await put(key, `old ${key}`)
await dieAfterPrewrite(['dead/1', 'dead/2'])
const half = await dieAfterPrewrite(['half/1', 'half/2'])
await percolator('commit', { keys: ['half/1'], start_ts: half, commit_ts: await tso() })
await dieAfterPrewrite(['async/1', 'async/2'], { use_async_commit: true, secondaries: ['async/2'] })
const held = await dieAfterPrewrite(['held/1', 'held/2'], { lock_ttl: 30 * DAY_MS })
await stop('SIGKILL')
const closedAtMs = Date.now()

for (const file of readdirSync(directory))
  if (!/^\d+\.(ldb|log)$|^CURRENT$|^MANIFEST/.test(file)) rmSync(`${directory}/${file}`)

// What it answers. Reads of locks and records come first, because later ones end the transactions of the dead.
const copy = `${directory}.copy`
cpSync(directory, copy, { recursive: true })
stop = await serve(copy)
const answers = []
async function record(method, path, body, headers) {
  const { response, text } = await send(method, path, body, headers)
  const replayed = response.headers.get('idempotency-replayed') ?? undefined
  const isJson = response.headers.get('content-type')?.includes('json')
  const answer = isJson ? lasting(text) : text.replace(/^x{20000}$/, '20000 x')
  answers.push({ method, path, body, headers, status: response.status, replayed, answer })
}
const keys = ['apple', 'pear', 'range/a', 'range/b', 'long', 'empty', 'gone', 'dead/1', 'half/2', 'async/1', 'held/2']
await record('POST', '/v1/percolator/scan_lock', { max_ts: 2 ** 53 - 1 })
for (const key of keys.filter((key) => key !== 'long')) await record('POST', '/v1/percolator/mvcc_get_by_key', { key })
for (const key of keys.filter((key) => key !== 'held/2')) await record('GET', `/v1/kv/${encodeURIComponent(key)}`)
await record('GET', '/v1/kv/held%2F2?lock_wait_ms=0')
for (const ts of [red, green, pinned]) await record('GET', `/v1/kv/apple?ts=${ts}`)
await record('GET', `/v1/kv/pear?ts=${yellow}`)
for (const prefix of ['dead/', 'half/', 'async/', 'many/', 'count', '%00'])
  await record('GET', `/v1/kv?prefix=${prefix}`)
await record('PUT', '/v1/kv/once', '1', { 'idempotency-key': 'put once' })
await record('POST', '/v1/txn', counted, { 'idempotency-key': 'count once' })
await record('GET', '/v1/observers/words')
await record('GET', '/v1/observers/words/parked')
await record('GET', '/v1/consumers/copy')
await record('GET', '/v1/consumers/copy/changes')
await record('GET', `/v1/changes?since_ts=${since}&keys_only=true&limit=10000`)
await record('GET', '/v1/admin/pins')
await stop('SIGTERM')
rmSync(copy, { recursive: true })
const lines = [{ closedAtMs, pinned, held }, ...answers].map((line) => `${JSON.stringify(line)}\n`)
writeFileSync(answersFile, lines.join(''))

function only({ key, fence }) {
  return { key, fence }
}

/** Without what another moment changes, and the words for people. */
function lasting(text) {
  const {
    ts: _ts,
    resolved_ts: _resolvedTs,
    next_ts: _nextTs,
    ...rest
  } = JSON.parse(text, (name, value) =>
    ['ttl', 'expires_at', 'lag_ms', 'workers', 'acks', 'conflicts', 'title', 'detail'].includes(name)
      ? undefined
      : value,
  )
  return rest
}
