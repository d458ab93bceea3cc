import fc from 'fast-check'
import type { LightMyRequestResponse } from 'fastify'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Json, pack, STATUS_OF_CODE, startServer, type TestServer } from './support.js'

const KEYS = ['a', 'b', 'c']
/** A refusal of these kinds comes before anything is read, so nothing may have changed. */
const REFUSED = new Set(['invalid_argument', 'payload_too_large', 'unsupported_media_type'])

const put = (key: string): Json => ({ op: 'put', key, value: 'v', assertion: 'exist' })
/** A valid body of every POST route. */
const SHAPES: Readonly<Record<string, Json>> = {
  '/v1/txn': {
    checks: [{ key: 'a', exists: true, value: 'v', commit_ts: 5 }],
    ops: [
      { op: 'get', key: 'a' },
      { op: 'put', key: 'b', value: 'v' },
      { op: 'increment', key: 'c', by: 1 },
      { op: 'scan', start: 'a', end: 'c', limit: 3, reverse: true, keys_only: false },
    ],
    max_retries: 0,
  },
  '/v1/txn/begin': { mode: 'pessimistic', isolation: 'serializable', ttl_ms: 50 },
  '/v1/txn/nobody/ops': { ops: [{ op: 'increment', key: 'a', by: 2 }] },
  '/v1/txn/nobody/commit': {},
  '/v1/txn/nobody/rollback': {},
  '/v1/percolator/acquire_pessimistic_lock': {
    keys: ['a', 'b'],
    primary: 'a',
    start_ts: 11,
    for_update_ts: 12,
    lock_ttl: 3,
    is_first_lock: true,
    wait_timeout: -1,
    return_values: true,
    check_existence: true,
    lock_only_if_exists: true,
    insert: false,
    wake_up_mode: 'normal',
  },
  '/v1/percolator/pessimistic_rollback': { keys: ['a'], start_ts: 11, for_update_ts: 12 },
  '/v1/percolator/validate_reads': {
    start_ts: 11,
    commit_ts: 13,
    keys: ['a'],
    ranges: [{ start: 'b', end: 'c' }, {}],
  },
  '/v1/kv/batch_get': { keys: ['a', 'b'], ts: 7 },
  '/v1/percolator/tso': { count: 1 },
  '/v1/percolator/get': { key: 'a', ts: 9 },
  '/v1/percolator/batch_get': { keys: ['a', { base64: 'Yg==' }], ts: 9 },
  '/v1/percolator/scan': { start: 'a', end: 'z', limit: 2, ts: 9, reverse: true, key_only: true },
  '/v1/percolator/prewrite': {
    mutations: [put('a'), { op: 'insert', key: 'b', value: { base64: '/w==' } }, { op: 'lock', key: 'c' }],
    primary: 'a',
    start_ts: 11,
    lock_ttl: 1,
    txn_size: 2,
    min_commit_ts: 12,
    max_commit_ts: 90,
    use_async_commit: true,
    secondaries: ['b'],
    try_one_pc: false,
    for_update_ts: 0,
    skip_constraint_check: false,
  },
  '/v1/percolator/commit': { keys: ['a', 'b'], start_ts: 11, commit_ts: 13, primary: 'a' },
  '/v1/percolator/rollback': { keys: ['a'], start_ts: 11 },
  '/v1/percolator/cleanup': { key: 'a', start_ts: 11, current_ts: 0 },
  '/v1/percolator/check_txn_status': {
    primary: 'a',
    lock_ts: 11,
    caller_start_ts: 12,
    current_ts: 13,
    rollback_if_not_exist: true,
    force_sync_commit: false,
    resolving_pessimistic_lock: false,
    verify_is_primary: true,
  },
  '/v1/percolator/check_secondary_locks': { keys: ['b'], start_ts: 11 },
  '/v1/percolator/txn_heart_beat': { primary: 'a', start_ts: 11, advise_lock_ttl: 3, min_commit_ts: 14 },
  '/v1/percolator/resolve_lock': { start_ts: 11, commit_ts: 0, keys: ['a'] },
  '/v1/percolator/scan_lock': { max_ts: 50, start: 'a', end: 'z', limit: 4 },
  '/v1/percolator/gc': { safe_point: 1 },
  '/v1/percolator/mvcc_get_by_key': { key: 'a' },
  '/v1/percolator/mvcc_get_by_start_ts': { start_ts: 11, start: 'a', end: 'z' },
  '/v1/percolator/delete_range': { start: 'b', end: 'c' },
}
const FIELDS = [...new Set(Object.values(SHAPES).flatMap(Object.keys)), '__proto__', 'constructor', 'toString', '']

const number = fc.oneof(
  fc.constantFrom(-1, 0, -0, 1, 1.5, 2 ** 31, 2 ** 32, 2 ** 53, 2 ** 53 - 1, 2 ** 64, 1e300, Number.MIN_VALUE),
  fc.integer(),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
)
const deep = fc.integer({ min: 1, max: 400 }).map((depth) => {
  let value: unknown = 1
  for (let i = 0; i < depth; i++) value = i % 2 === 0 ? [value] : { key: value }
  return value
})
const wrong: fc.Arbitrary<unknown> = fc.oneof(
  number,
  fc.string({ unit: 'binary' }),
  fc.constantFrom('', 'a', '\ud800', '\0', 'put', 'get', 'exist', null, true, false, {}, [], { base64: '' }),
  fc.record({ base64: fc.oneof(fc.base64String(), fc.string(), number) }),
  fc.jsonValue({ maxDepth: 3 }),
  fc.array(fc.constantFrom('a', 'b', 'c'), { maxLength: 3 }),
  deep,
)

interface Change {
  /** Which of the places in the body, modulo their number. */
  readonly place: number
  readonly kind: 'replace' | 'remove' | 'add' | 'move'
  readonly field: string
  readonly value: unknown
}
const change: fc.Arbitrary<Change> = fc.record({
  place: fc.nat(),
  kind: fc.constantFrom('replace' as const, 'remove' as const, 'add' as const, 'move' as const),
  field: fc.constantFrom(...FIELDS),
  value: wrong,
})

type Place = { readonly parent: Json; readonly name: string }
function placesOf(value: unknown): Place[] {
  if (typeof value !== 'object' || value === null) return []
  const parent = value as Json
  return Object.keys(parent).flatMap((name) => [{ parent, name }, ...placesOf(parent[name])])
}

function changed(shape: Json, changes: readonly Change[]): unknown {
  const root: Json = { body: structuredClone(shape) }
  for (const { place, kind, field, value } of changes) {
    const places = placesOf(root)
    const at = places[place % places.length]
    if (at === undefined) continue
    if (kind === 'replace') at.parent[at.name] = value
    else if (kind === 'remove' && at.parent !== root) delete at.parent[at.name]
    else Object.defineProperty(at.parent, field, { value: kind === 'add' ? value : at.parent[at.name], ...OWN })
  }
  return root['body']
}
const OWN = { enumerable: true, configurable: true, writable: true }

let server: TestServer
beforeAll(async () => {
  server = await startServer()
  await server.write(5, 6, KEYS)
})
afterAll(async () => {
  await server.app.close()
  await server.store.close()
})

/** Every row of the keys, and of nothing else. */
const rows = async (): Promise<string> =>
  JSON.stringify(await Promise.all(KEYS.map((key) => server.store.mvccGetByKey({ key: Buffer.from(key) }))))

function requireSound(answer: LightMyRequestResponse, what: string): string | undefined {
  expect(answer.statusCode, `${what}: ${answer.body}`).toBeLessThan(500)
  if (answer.statusCode < 400) return undefined
  expect(answer.headers['content-type'], what).toMatch(/^application\/problem\+json/)
  const { code, status } = answer.json<Json>()
  expect(STATUS_OF_CODE[String(code)], `${what}: ${answer.body}`).toBe(answer.statusCode)
  expect(status).toBe(answer.statusCode)
  return String(code)
}

async function sendAndCompare(what: string, send: () => Promise<LightMyRequestResponse>): Promise<void> {
  const before = await rows()
  const code = requireSound(await send(), what)
  if (code !== undefined && REFUSED.has(code)) expect(await rows(), what).toBe(before)
  // What stays locked would make later requests wait.
  const { locks } = await server.store.scanLock({ maxTs: Number.MAX_SAFE_INTEGER })
  for (const { key, startTs } of locks) await server.store.rollback({ keys: [key], startTs })
}

const TIME_LIMIT = { interruptAfterTimeLimit: 1500, markInterruptAsFailure: false }

describe('no request makes the server fail, and a refused one changes nothing', () => {
  const request = fc.record({
    url: fc.constantFrom(...Object.keys(SHAPES)),
    changes: fc.array(change, { minLength: 1, maxLength: 4 }),
  })

  test('JSON', async () => {
    const property = fc.asyncProperty(request, async ({ url, changes }) => {
      const body = changed(SHAPES[url] ?? {}, changes)
      await sendAndCompare(url, () => server.post(url, body))
    })
    await fc.assert(property, { numRuns: 1200, ...TIME_LIMIT })
  })

  test('MessagePack', async () => {
    const property = fc.asyncProperty(request, async ({ url, changes }) => {
      const body = pack(changed(SHAPES[url] ?? {}, changes))
      await sendAndCompare(url, () => server.postPacked(url, body))
    })
    await fc.assert(property, { numRuns: 1200, ...TIME_LIMIT })
  })

  test('bytes that are no body at all', async () => {
    const url = fc.constantFrom(...Object.keys(SHAPES))
    const property = fc.asyncProperty(
      url,
      fc.uint8Array({ maxLength: 60 }),
      fc.boolean(),
      async (to, bytes, isJson) => {
        const type = { 'content-type': isJson ? 'application/json' : 'application/msgpack' }
        await sendAndCompare(to, () => server.send('POST', to, type, Buffer.from(bytes)))
      },
    )
    await fc.assert(property, { numRuns: 800, ...TIME_LIMIT })
  })

  test('URLs of GET', async () => {
    const part = fc.oneof(fc.string(), fc.webFragments(), fc.constantFrom('%', '%FF', '%2F', '..', '%00', '1', 'true'))
    const name = fc.oneof(
      fc.constantFrom('ts', 'at', 'prefix', 'start', 'end', 'limit', 'reverse', 'keys_only', 'count_only', 'cursor'),
      fc.string(),
    )
    const query = fc.array(fc.tuple(name, part), { maxLength: 3 })
    const path = fc.oneof(fc.constantFrom('/v1/kv', '/v1/kv/', '/v1/kv/a', '/v1/status'), part)
    const property = fc.asyncProperty(path, query, fc.boolean(), async (at, parameters, isEncoded) => {
      const write = isEncoded ? encodeURIComponent : (text: string) => text
      const pairs = parameters.map(([key, value]) => `${write(key.toWellFormed())}=${write(value.toWellFormed())}`)
      const url = `${at.startsWith('/') ? at : `/v1/kv/${encodeURIComponent(at.toWellFormed())}`}?${pairs.join('&')}`
      await sendAndCompare(url, () => server.get(url))
    })
    await fc.assert(property, { numRuns: 800, ...TIME_LIMIT })
  })
})
