import { rm } from 'node:fs/promises'
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest'
import { Consumers } from '../../src/client/changes/consumers.js'
import { Db } from '../../src/client/db.js'
import type { Fetch } from '../../src/client/http/fetch-sender.js'
import * as client from '../../src/client/index.js'
import { Leases } from '../../src/client/leases/leases.js'
import { Observers } from '../../src/client/observers/observers.js'
import { Snapshot } from '../../src/client/snapshot.js'
import { OpenTxn, Txn } from '../../src/client/txn.js'
import { collect, connectTo, failureOf } from '../coordinator/support.js'
import { startServer, type TestServer } from '../http/support.js'

/** Requests since the set-up. */
let sent: string[]
let db: Db
let snapshot: Snapshot
let txn: OpenTxn

/** Most calls here are refused before anything is sent, and the next test goes on with the same server. */
let server: TestServer | undefined
let isChanged = false

async function setUp(): Promise<TestServer> {
  const started = await startServer()
  const fetch: Fetch = (url, init) => {
    sent.push(url)
    isChanged = true
    return globalThis.fetch(url, init)
  }
  db = await connectTo(started, { fetch })
  await db.put('k', '1')
  await db.observers.put('words', WORDS)
  await db.consumers.put('copy')
  snapshot = await db.snapshot()
  txn = await db.begin({ mode: 'pessimistic' })
  isChanged = false
  return started
}

async function tearDown(): Promise<void> {
  if (server === undefined) return
  await db.close() // Stops observing.
  await server.close()
  await rm(server.directory, { recursive: true, force: true })
  server = undefined
}

beforeEach(async () => {
  sent = []
  server ??= await setUp()
  sent = []
})
afterEach(() => (isChanged ? tearDown() : undefined))
afterAll(tearDown)

function ignoreAbsent(error: unknown): void {
  if (!client.isKvError(error, 'not_found')) throw error
}

/** Options as JavaScript may give them. */
type Given = never

interface Call {
  readonly call: (given: never) => unknown
  /** The names of its options; none where its last argument is not one of options. */
  readonly options: readonly string[]
}

const WAIT = ['lockWaitMs', 'signal']
/** Options of a call that needs a range. */
function withPrefix(given: Given): Given {
  const { prefix, start, end } = (given ?? {}) as Readonly<Record<string, unknown>>
  const isWithout = prefix === undefined && start === undefined && end === undefined
  return isWithout && typeof given === 'object' && !Array.isArray(given) ? Object.assign(given, { prefix: 'k' }) : given
}

/** Options of a call that needs an expiry. */
function withExpiry(given: Given): Given {
  const { ttl, expireAt, persist } = (given ?? {}) as Readonly<Record<string, unknown>>
  const isWithout = ttl === undefined && expireAt === undefined && persist === undefined
  return isWithout && typeof given === 'object' && !Array.isArray(given)
    ? Object.assign(given, { persist: true })
    : given
}

/** Options of a lease, which nobody else holds. */
function withTtl(given: Given): Given {
  const { ttlMs } = (given ?? {}) as Readonly<Record<string, unknown>>
  return ttlMs === undefined && typeof given === 'object' && !Array.isArray(given)
    ? Object.assign(given, { ttlMs: 60_000 })
    : given
}

const TIMED = [...WAIT, 'timeoutMs']
const AT = ['ts', 'at']
const EXPIRY = ['ttl', 'expireAt']
const RANGE = ['prefix', 'start', 'end']
const SCAN = [...RANGE, 'as', 'limit', 'reverse', 'keysOnly']
const BEGIN = [...WAIT, 'mode', 'isolation', 'acks', 'positions', 'leases']
const REGISTRATION = ['backfill', 'maxAttempts', 'backoffMs', 'backoffMaxMs', 'maxDepth']
const WORDS = { prefix: 'words/' }

/** Every function that a program can reach from `perkv/client`, by its name. */
const CALLS: Readonly<Record<string, Call>> = {
  connect: {
    call: (given) => client.connect('http://kv.test', given),
    options: [
      'fetch',
      'token',
      'headers',
      'requestTimeoutMs',
      'connectTimeoutMs',
      'retryMs',
      'onRetry',
      'lockWaitMs',
      'timeoutMs',
      'ca',
    ],
  },
  'Db.get': { call: (given) => db.get('k', given), options: [...TIMED, ...AT, 'as'] },
  'Db.getVersion': { call: (given) => db.getVersion('k', given), options: [...TIMED, ...AT, 'as'] },
  'Db.put': {
    call: (given) => db.put('k', 'v', given),
    options: [...TIMED, ...EXPIRY, 'ifMatch', 'ifAbsent', 'idempotencyKey'],
  },
  'Db.touch': {
    call: (given) => db.touch('k', withExpiry(given)),
    options: [...TIMED, ...EXPIRY, 'persist', 'idempotencyKey'],
  },
  'Db.delete': { call: (given) => db.delete('k', given), options: [...TIMED, 'ifMatch', 'idempotencyKey'] },
  'Db.batchGet': { call: (given) => db.batchGet(['k'], given), options: [...TIMED, ...AT, 'as'] },
  'Db.scan': { call: (given) => collect(db.scan(given)), options: [...TIMED, ...AT, ...SCAN] },
  'Db.count': { call: (given) => db.count(given), options: [...TIMED, ...AT, ...RANGE] },
  'Db.countAsOf': { call: (given) => db.countAsOf(given), options: [...TIMED, ...AT, ...RANGE] },
  'Db.snapshot': { call: (given) => db.snapshot(undefined, given), options: TIMED },
  'Db.transaction': { call: (given) => db.transaction(() => 7, given), options: [...BEGIN, 'retries', 'timeoutMs'] },
  'Db.deleteRange': {
    call: (given) => db.deleteRange(withPrefix(given)),
    options: [...TIMED, ...RANGE, 'limit'],
  },
  'Db.begin': { call: (given) => db.begin(given), options: [...BEGIN, 'timeoutMs'] },
  'Db.observe': {
    // It does not end by itself.
    call: (given) => Promise.race([db.observe('new', WORDS, () => {}, given), undefined]),
    options: [
      ...[...WAIT, 'mode', 'isolation', 'retries', ...REGISTRATION],
      ...['concurrency', 'batch', 'leaseMs', 'worker', 'as', 'onError', 'timeoutMs'],
    ],
  },
  'Db.changes': {
    call: (given) => Promise.race([db.changes(given).next(), undefined]),
    options: [
      ...[...RANGE, 'prefixes', 'keys', 'sinceTs', 'position', 'snapshot', 'consumer'],
      ...['keysOnly', 'oldValues', 'as', 'signal', 'heartbeatMs', 'onResolved', 'onError'],
    ],
  },
  'Db.watch': {
    call: (given) => Promise.race([db.watch('k', given).next(), undefined]),
    options: ['seenTs', 'as', 'signal', 'onError'],
  },
  'Db.lease': {
    call: (given) => db.lease(`new-${Math.random()}`, withTtl(given)),
    options: ['ttlMs', 'waitMs', 'holder', 'signal', 'timeoutMs'],
  },
  'Leases.list': { call: (given) => db.leases.list(given), options: ['prefix', 'timeoutMs'] },
  'Leases.get': { call: (given) => db.leases.get('leader', given).catch(ignoreAbsent), options: ['timeoutMs'] },
  'Observers.put': {
    call: (given) => db.observers.put('words', WORDS, given),
    options: [...REGISTRATION, 'as', 'timeoutMs'],
  },
  'Observers.get': { call: (given) => db.observers.get('words', given), options: ['as', 'timeoutMs'] },
  'Consumers.put': {
    call: (given) => db.consumers.put('copy', {}, given),
    options: ['sinceTs', 'holdMs', 'as', 'timeoutMs'],
  },
  'Consumers.get': { call: (given) => db.consumers.get('copy', given), options: ['as', 'timeoutMs'] },
  'Consumers.list': { call: (given) => db.consumers.list(given), options: ['as', 'timeoutMs'] },
  'Consumers.ack': { call: (given) => db.consumers.ack('copy', 1, given), options: ['as', 'timeoutMs'] },
  'Consumers.reset': { call: (given) => db.consumers.reset('copy', given), options: ['sinceTs', 'as', 'timeoutMs'] },
  'Observers.list': { call: (given) => db.observers.list(given), options: ['as', 'timeoutMs'] },
  'Observers.claim': {
    call: (given) => db.observers.claim('words', given),
    options: ['worker', 'limit', 'waitMs', 'leaseMs', 'values', 'as', 'signal', 'timeoutMs'],
  },
  'Observers.extend': { call: (given) => db.observers.extend('words', [], given), options: ['leaseMs', 'timeoutMs'] },
  'Observers.release': { call: (given) => db.observers.release('words', [], given), options: ['as', 'timeoutMs'] },
  'Observers.parked': { call: (given) => collect(db.observers.parked('words', given)), options: ['as', 'timeoutMs'] },
  'Consumers.delete': { call: (given) => db.consumers.delete('copy', given), options: ['timeoutMs'] },
  'Observers.delete': { call: (given) => db.observers.delete('words', given), options: ['timeoutMs'] },
  'Observers.retry': { call: (given) => db.observers.retry('words', ['k'], given), options: ['timeoutMs'] },
  'Observers.skip': { call: (given) => db.observers.skip('words', ['k'], given), options: ['timeoutMs'] },
  'Observers.backfill': { call: (given) => db.observers.backfill('words', given), options: ['timeoutMs'] },
  'Observers.pause': { call: (given) => db.observers.pause('words', given), options: ['timeoutMs'] },
  'Observers.resume': { call: (given) => db.observers.resume('words', given), options: ['timeoutMs'] },
  'Snapshot.get': { call: (given) => snapshot.get('k', given), options: ['as', 'signal'] },
  'Snapshot.getVersion': { call: (given) => snapshot.getVersion('k', given), options: ['as', 'signal'] },
  'Snapshot.batchGet': { call: (given) => snapshot.batchGet(['k'], given), options: ['as', 'signal'] },
  'Snapshot.scan': { call: (given) => collect(snapshot.scan(given)), options: [...SCAN, 'signal'] },
  'Snapshot.count': { call: (given) => snapshot.count(given), options: [...RANGE, 'signal'] },
  'Txn.get': { call: (given) => txn.get('k', given), options: ['as'] },
  'Txn.getVersion': { call: (given) => txn.getVersion('k', given), options: ['as'] },
  'Txn.getForUpdate': { call: (given) => txn.getForUpdate('k', given), options: ['as'] },
  'Txn.batchGet': { call: (given) => txn.batchGet(['k'], given), options: ['as'] },
  'Txn.deleteRange': { call: (given) => txn.deleteRange(withPrefix(given)), options: [...RANGE, 'limit'] },
  'Txn.scan': { call: (given) => collect(txn.scan(given)), options: SCAN },
  // They take no conditions, and their namesakes of Db do: a condition must not be dropped without a word.
  'Txn.put': { call: (given) => txn.put('k', 'v', given), options: [...EXPIRY, 'lease', 'versionstamp'] },
  'Txn.delete': { call: (...given: []) => txn.delete('k', ...given), options: [] },
  'Txn.insert': { call: (given) => txn.insert(`new ${Math.random()}`, 'v', given), options: [...EXPIRY, 'lease'] },
  'Txn.increment': { call: (given) => txn.increment('k', 1, given), options: EXPIRY },
  'Txn.min': { call: (given) => txn.min('k', 1, given), options: EXPIRY },
  'Txn.max': { call: (given) => txn.max('k', 1, given), options: EXPIRY },
  'Txn.touch': {
    call: (given) => txn.touch('k', withExpiry(given)),
    options: [...EXPIRY, 'persist'],
  },
}

/** Those that have no options, and no namesake that has. */
const WITHOUT_OPTIONS = [
  ...['isKvError', 'isRetryable', 'isUncertain', 'physicalMs', 'timestampFromMs'],
  ...['KvError', 'ConnectionError', 'ServerError', 'Undetermined'],
  ...['Db.close', 'OpenTxn.commit', 'OpenTxn.rollback', 'Observers.notify', 'Txn.notify'],
]

const INTERNAL: ReadonlySet<string> = new Set([
  'constructor',
  'requireAwaited',
  'notified',
  'givenUp',
  'call',
  'timed',
  'timedWrite',
])

function methodsOf(type: { readonly name: string; readonly prototype: object }): string[] {
  return Object.entries(Object.getOwnPropertyDescriptors(type.prototype))
    .filter(([name, { value }]) => typeof value === 'function' && !INTERNAL.has(name))
    .map(([name]) => `${type.name}.${name}`)
}

async function refusalOf(call: Call['call'], given: unknown): Promise<Error> {
  const error = await failureOf((async () => call(given as Given))())
  expect(error).toBeInstanceOf(TypeError)
  expect(sent).toEqual([])
  return error
}

test('every function of the package is known here', () => {
  const exported = Object.entries(client).filter(([, value]) => typeof value === 'function')
  const all = [
    ...exported.map(([name]) => name),
    ...[Db, Consumers, Leases, Observers, Snapshot, Txn, OpenTxn].flatMap(methodsOf),
  ]
  expect([...Object.keys(CALLS), ...WITHOUT_OPTIONS].toSorted()).toEqual(all.toSorted())
})

describe.each(Object.entries(CALLS))('%s', (_, { call, options }) => {
  test('refuses an option that it does not have, and names it', async () => {
    const { message } = await refusalOf(call, { misspelt: undefined })
    if (options.length === 0) return expect(message).toMatch(/ has no options$/)
    expect(message).toContain(' has no option "misspelt"')
    expect(message.split(': its options are ')[1]?.split(', ').toSorted()).toEqual(options.toSorted())
    expect((await refusalOf(call, Object.create({ misspelt: 1 }))).message).toContain('"misspelt"')
    for (const name of options)
      for (const misspelt of [name.toLowerCase(), name.slice(0, -1), `${name}s`])
        if (!options.includes(misspelt)) {
          const { message } = await refusalOf(call, { [misspelt]: 1 })
          expect(message).toContain(`"${misspelt}"`)
          expect(message).toContain(name) // What there is.
        }
  })

  test('refuses values of the wrong type, and says what is right', async () => {
    for (const name of options)
      for (const wrong of [
        null,
        Symbol('wrong'),
        ['acks', 'positions', 'leases'].includes(name) ? [7] : [],
        Number.NaN,
      ])
        expect((await refusalOf(call, { [name]: wrong })).message, name).toMatch(new RegExp(`\\b${name} must be `))
  })

  test('takes what is undefined as not given, unless it is a condition', async () => {
    for (const name of options) {
      sent = []
      if (name === 'ifMatch' || name === 'ifAbsent') {
        const { message } = await refusalOf(call, { [name]: undefined })
        expect(message).toContain(`${name} must be `)
      } else await (call as (given: object) => unknown)({ [name]: undefined })
    }
  })

  test('refuses options that are none', async () => {
    for (const wrong of [null, 'text', 7, true, () => {}, ['k']]) if (options.length > 0) await refusalOf(call, wrong)
  })
})

describe('values', () => {
  const wrong: readonly [string, Call['call'], object][] = [
    ['a version as text', (given) => db.put('k', 'v', given), { ifMatch: '5' }],
    ['the version of an absent key', (given) => db.put('k', 'v', given), { ifMatch: 0 }],
    ['a condition that is no boolean', (given) => db.put('k', 'v', given), { ifAbsent: 'yes' }],
    ['both conditions', (given) => db.put('k', 'v', given), { ifMatch: 1, ifAbsent: true }],
    ['an idempotency key of nothing', (given) => db.put('k', 'v', given), { idempotencyKey: '' }],
    ['half a millisecond', (given) => db.get('k', given), { lockWaitMs: 0.5 }],
    ['less than nothing', (given) => db.get('k', given), { lockWaitMs: -1 }],
    ['a date as a number', (given) => db.get('k', given), { at: Date.now() }],
    ['a date that is none', (given) => db.get('k', given), { at: new Date('yesterday') }],
    ['both times', (given) => db.batchGet(['k'], given), { ts: 1, at: new Date() }],
    ['another form', (given) => db.batchGet(['k'], given), { as: 'json' }],
    ['half a pair', (given) => collect(db.scan(given)), { limit: 0.5 }],
    ['a prefix and a bound', (given) => collect(db.scan(given)), { prefix: 'a', start: 'b' }],
    ['a prefix and a bound, counted', (given) => snapshot.count(given), { prefix: 'a', start: 'b' }],
    ['an isolation that there is not', (given) => db.transaction(() => 7, given), { isolation: 'serialisable' }],
    ['a lease without its fence', (given) => db.transaction(() => 7, given), { leases: [{ name: 'a' }] }],
    ['a lease under no fence', (given) => db.begin(given), { leases: [{ name: 'a', fence: 0 }] }],
    ['a lease for a moment', (given) => db.lease('a', given), { ttlMs: 99 }],
    ['a lease for ever', (given) => db.lease('a', given), { ttlMs: Number.POSITIVE_INFINITY }],
    ['a lease for no time', (given) => db.lease('a', given), {}],
    ['a lease without a name', (given) => db.lease('', given), { ttlMs: 1000 }],
    ['a lease whose name is a path', (given) => db.lease('..', given), { ttlMs: 1000 }],
    ['a lease whose name has a blank', (given) => db.lease('a b', given), { ttlMs: 1000 }],
    ['retries as text', (given) => db.transaction(() => 7, given), { retries: '3' }],
    ['fewer retries than none', (given) => db.transaction(() => 7, given), { retries: -1 }],
    ['retries of begin', (given) => db.begin(given), { retries: 3 }],
    ['less than one at once', (given) => db.observe('words', WORDS, () => {}, given), { concurrency: 0 }],
    [
      'a batch of more than a transaction acknowledges',
      (given) => db.observe('words', WORDS, () => {}, given),
      { batch: 1001 },
    ],
    ['a lease that is over at once', (given) => db.observe('words', WORDS, () => {}, given), { leaseMs: 99 }],
    ['an acknowledgement without fence', (given) => db.begin(given), { acks: [{ observer: 'words', key: 'k' }] }],
    ['a range with too much', (given) => db.observers.put('words', given), { prefix: 'a', start: 'b' }],
    ['a range that is none', (given) => db.observers.put('words', given), {}],
    [
      'a wait without bound',
      (given) => client.connect('http://kv.test', given),
      { lockWaitMs: Number.POSITIVE_INFINITY },
    ],
    ['no time at all', (given) => client.connect('http://kv.test', given), { requestTimeoutMs: 0 }],
    ['no time to connect', (given) => client.connect('http://kv.test', given), { connectTimeoutMs: 0 }],
  ]
  test.each(wrong)('%s', async (_, call, given) => {
    await refusalOf(call, given)
  })

  const arguments_: readonly [string, () => unknown][] = [
    ['keys that are no list', () => db.batchGet('abc' as Given)],
    ['a key that is none', () => db.batchGet(['k', undefined as Given])],
    ['keys that are no list, of a snapshot', () => snapshot.batchGet(new Set(['k']) as Given)],
    ['keys that are no list, in a transaction', () => txn.batchGet('abc' as Given)],
    ['options in the place of the function', () => db.transaction({ retries: 3 } as Given)],
    ['options in the place of the time', () => db.snapshot({ lockWaitMs: 5 } as Given)],
    ['a name with a slash', () => db.observers.get('words/1')],
    ['a name that a URL cannot carry', () => db.observe('..', WORDS, () => {})],
    ['options in the place of the function of observe', () => db.observe('words', WORDS, { batch: 7 } as Given)],
    ['a name with a slash, in a transaction', () => txn.notify('words/1', 'k')],
    ['a counter by text', () => txn.increment('k', '1' as Given)],
    ['the max of a counter and nothing', () => txn.max('k', undefined as Given)],
  ]
  test.each(arguments_)('%s', async (_, call) => {
    await refusalOf(call, undefined)
  })

  test('no message says the token', async () => {
    const token = 'secret secret'
    for (const given of [{ token }, { token: [token] }, { tokn: token }, token])
      expect((await refusalOf((one) => client.connect('http://kv.test', one), given)).message).not.toContain('secret')
  })
})

test('a condition on the version of an absent key does not write', async () => {
  const version = await db.getVersion('nobody')
  sent = []
  const options = { ifMatch: version?.commitTs } as { ifMatch: number }
  const { message } = await refusalOf(() => db.put('nobody', 'v', options), undefined)
  expect(message).toContain('ifAbsent')
  expect(await db.get('nobody')).toBeUndefined()
})
