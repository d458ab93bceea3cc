import { copyFile, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { checkDirectory } from '../../../../src/store/leveldb/integrity/check-directory.js'
import { type Headers, type Json, type Method, okBody, type TestServer, testServers } from '../../../http/support.js'
import { testStores } from '../../support.js'

/** A directory that the last PerKV of release 0.1.0 wrote and was killed over, and its own answers from it: README.md beside this. */

const stores = testStores()
const startServer = testServers()

const WRITTEN = fileURLToPath(new URL('./format-6/', import.meta.url))
const ANSWERS = new URL('./format-6.ndjson', import.meta.url)

interface Facts {
  readonly closedAtMs: number
  /** Timestamp of the pin. */
  readonly pinned: number
  /** start_ts of the transaction whose locks live. */
  readonly held: number
}

interface Recorded {
  readonly method: Method
  readonly path: string
  readonly body?: string | Json
  readonly headers?: Headers
  readonly status: number
  readonly replayed?: string
  readonly answer: string | Json
}

async function recorded(): Promise<readonly [Facts, ...Recorded[]]> {
  const lines = (await readFile(ANSWERS, 'utf8')).trimEnd().split('\n')
  return lines.map((line) => JSON.parse(line)) as [Facts, ...Recorded[]]
}

async function copyOfWritten(): Promise<string> {
  const directory = await stores.directory()
  for (const file of await readdir(WRITTEN)) await copyFile(join(WRITTEN, file), join(directory, file))
  return directory
}

async function expectSound(directory: string): Promise<void> {
  const messages: string[] = []
  const checked = await checkDirectory(directory, { onFinding: ({ message }) => void messages.push(message) })
  expect([checked.isSound, messages]).toEqual([true, []])
}

async function expectAnswer(server: TestServer, { method, path, body, headers = {}, ...expected }: Recorded) {
  const isJson = typeof body === 'object'
  const type = { 'content-type': isJson ? 'application/json' : 'application/x-www-form-urlencoded' }
  const payload = isJson ? JSON.stringify(body) : body
  const sent = await server.send(method, path, body === undefined ? headers : { ...type, ...headers }, payload)
  const { status, replayed, answer } = expected
  expect([sent.statusCode, sent.headers['idempotency-replayed']], path).toEqual([status, replayed])
  if (typeof answer === 'object') expect(sent.json(), path).toMatchObject(answer)
  else expect(sent.body.replace(/^x{20000}$/, '20000 x'), path).toBe(answer)
}

test('a directory of release 0.1.0 is sound, gives the same answers, and goes on', { tags: ['long'] }, async () => {
  const [{ closedAtMs, pinned, held }, ...answers] = await recorded()
  const directory = await copyOfWritten()
  await expect(expectSound(directory)).rejects.toThrow('has format 6: perkv serve converts it')
  let nowMs = closedAtMs + 1000
  const server = await startServer({ directory, now: () => nowMs })
  for (const each of answers) {
    // The locks of the dead are read first, and are over before anybody meets them.
    if (each.method === 'GET' && nowMs === closedAtMs + 1000) nowMs += 10_000
    await expectAnswer(server, each)
  }

  await server.put('apple', 'brown')
  await server.ok('resolve_lock', { start_ts: held, commit_ts: 0 })
  expect((await server.get('/v1/kv/held%2F1')).body).toBe('old held/1')
  expect(okBody(await server.post('/v1/txn', { ops: [{ op: 'increment', key: 'count', by: 1 }] }))).toMatchObject({
    results: [{ value: '2' }],
  })

  expect(okBody(await server.send('POST', '/v1/observers/words/retry'))).toEqual({ retried: 1 })
  const claimed = okBody(await server.post('/v1/observers/words/claim', { worker: 'w', limit: 10 }))
  const notifications = claimed['notifications'] as { key: string; fence: number; attempt: number }[]
  expect(notifications.map(({ key, attempt }) => [key, attempt]).sort()).toEqual([
    ['doc/bad', 1],
    ['doc/waiting', 1],
  ])
  const page = okBody(await server.get('/v1/consumers/copy/changes'))
  const consumer = okBody(await server.get('/v1/consumers/copy'))
  const acks = notifications.map(({ key, fence }) => ({ observer: 'words', key, fence }))
  const positions = [{ consumer: 'copy', from: consumer['position'], ts: page['next_ts'] }]
  okBody(await server.post('/v1/txn', { acks, positions }))
  expect(okBody(await server.get('/v1/observers/words'))).toMatchObject({ pending: 0, parked: 0 })
  expect(okBody(await server.get('/v1/consumers/copy'))).toMatchObject({ position: page['next_ts'] })

  // The pin is the reason why older versions are still there.
  nowMs += 3_600_000
  expect(okBody(await server.post('/v1/admin/gc', {}))).toMatchObject({ safe_point: pinned, held_back_by: 'pin' })
  expect((await server.get(`/v1/kv/apple?ts=${pinned}`)).body).toBe('green')
  await server.app.close()
  await server.store.close()
  await expectSound(directory)
})
