import { describe, expect, test, vi } from 'vitest'
import { TEST_STORE } from '../store/test-store.js'
import { type Claimed, Observing } from './observing.js'
import {
  expectProblem,
  type Json,
  listOf,
  numberOf,
  okBody,
  type Sent,
  type TestServer,
  testServers,
} from './support.js'

const start = testServers()

interface Marked {
  readonly server: TestServer
  readonly words: Observing
  readonly claimed: Claimed
}

/** A server with one document, which is claimed. */
async function startClaimed(registration: Json = {}, claim: Json = {}): Promise<Marked> {
  const server = await start()
  const words = await Observing.of(server, { prefix: 'doc/', ...registration })
  await server.put('doc/1', 'to be')
  return { server, words, claimed: await words.claimOne(claim) }
}

const put = (key: string, value = 'v'): Json => ({ op: 'put', key, value })

function expectRefused(answer: Sent, fields: Json): Json {
  return expectProblem(answer, 'write_conflict', { observer: 'words', key: 'doc/1', ...fields })
}

describe('the rule of acknowledgements', () => {
  test('a run is acknowledged with what it writes, in one transaction', async () => {
    const { server, words, claimed } = await startClaimed()
    const answer = okBody(await words.ack(claimed, { ops: [put('count/1', '2')] }))
    expect(answer).toEqual({ start_ts: expect.any(Number), commit_ts: expect.any(Number), results: [{}] })
    const written = await server.get('/v1/kv/count/1')
    expect(written.headers['etag']).toBe(`"${answer['commit_ts']}"`)
    expect(await words.claim()).toEqual([])
    await expect.poll(() => words.state()).toMatchObject({ pending: 0, claimed: 0, acks: 1, conflicts: 0 })
  })

  test('without ops it commits too', async () => {
    const { words, claimed } = await startClaimed()
    const answer = okBody(await words.ack(claimed))
    expect(answer).toEqual({ start_ts: expect.any(Number), commit_ts: expect.any(Number), results: [] })
    expect(numberOf(answer, 'commit_ts')).toBeGreaterThan(numberOf(answer, 'start_ts') - 1)
    expect(numberOf(answer, 'commit_ts')).toBeGreaterThan(claimed.fence)
  })

  test('a second time it is refused, and nothing of its transaction is done', async () => {
    const { server, words, claimed } = await startClaimed()
    const commitTs = await words.acked(claimed)
    const ops = [put('count/1'), { op: 'increment', key: 'n' }]
    const refused = expectRefused(await words.ack(claimed, { ops }), { reason: 'acknowledged', retryable: false })
    expect(refused).toMatchObject({ conflict_start_ts: claimed.fence, conflict_commit_ts: commitTs, primary: 'doc/1' })
    for (const key of ['count/1', 'n']) expectProblem(await server.get(`/v1/kv/${key}`), 'not_found')
    expect(await words.state()).toMatchObject({ acks: 1, conflicts: 1 })
  })

  test('a run that began before another one committed is refused, and worth to be claimed again', async () => {
    const { server, words, claimed } = await startClaimed()
    await words.release([claimed])
    const other = await words.claimOne()
    const commitTs = await words.acked(other)
    await server.put('doc/1', 'or not')
    const conflict = { conflict_start_ts: other.fence, conflict_commit_ts: commitTs }
    expectRefused(await words.ack(claimed), { reason: 'acknowledged', retryable: true, ...conflict })
    expect(await words.claimOne()).toMatchObject({ key: 'doc/1', attempt: 1 })
  })

  test('a run whose cell was handed out again is refused', async () => {
    const { words, claimed } = await startClaimed()
    await words.release([claimed])
    const other = await words.claimOne()
    expect(other.fence).toBeGreaterThan(claimed.fence)
    expectRefused(await words.ack(claimed), { reason: 'superseded', retryable: false })
    await words.acked(other)
  })

  test('a run whose lease ran out may commit, as long as nobody else has the cell', async () => {
    const { words, claimed } = await startClaimed(
      { backoff_ms: 3_600_000, backoff_max_ms: 3_600_000 },
      { lease_ms: 100 },
    )
    await vi.waitFor(async () => expect(await words.state()).toMatchObject({ claimed: 0, delayed: 1 }), 5000)
    await words.acked(claimed)
    await expect.poll(() => words.cleaned()).toMatchObject({ pending: 0, delayed: 0 })
  })

  test('a change after the claim is left to the next run', async () => {
    const { server, words, claimed } = await startClaimed()
    const changed = await server.put('doc/1', 'or not')
    await words.acked(claimed)
    const next = await words.claimOne()
    expect(next).toMatchObject({ key: 'doc/1', kind: 'put', commit_ts: changed, attempt: 1 })
    await words.acked(next)
    expect(await words.claim()).toEqual([])
  })

  test('a notification after the claim leaves nothing that this run has seen', async () => {
    const server = await start()
    const words = await Observing.of(server)
    await words.post('notify', { keys: ['doc/1'] })
    const claimed = await words.claimOne()
    await words.post('notify', { keys: ['doc/1'] })
    expectRefused(await words.ack(claimed), { reason: 'acknowledged', retryable: true })
  })

  test('below the safe point it is 410', async () => {
    const { server, words, claimed } = await startClaimed()
    const { ts } = await server.ok('tso', {})
    await server.ok('gc', { safe_point: ts })
    expectProblem(await words.ack(claimed, { ops: [put('count/1')] }), 'ts_below_safe_point', { safe_point: ts })
    expectProblem(await server.get('/v1/kv/count/1'), 'not_found')
  })

  test('one refused acknowledgement of many refuses all of them', async () => {
    const server = await start()
    const words = await Observing.of(server)
    await server.txn({ ops: [put('doc/1'), put('doc/2'), put('doc/3')] })
    const claims = await words.claim({ limit: 3 })
    const first = claims.find(({ key }) => key === 'doc/1') as Claimed
    await words.acked(first)
    const acks = claims.map((one) => words.ackOf(one))
    expectRefused(await server.post('/v1/txn', { acks, ops: [put('a')] }), { reason: 'acknowledged' })
    expect(await words.state()).toMatchObject({ pending: 2 })
    await server.txn({ acks: acks.filter(({ key }) => key !== 'doc/1'), ops: [put('a')] })
    await expect.poll(() => words.cleaned()).toMatchObject({ pending: 0, acks: 3 })
  })
})

describe('what a run writes', () => {
  test('does not mark the key that it acknowledges, but others of the range', async () => {
    const { words, claimed } = await startClaimed()
    const commitTs = await words.acked(claimed, { ops: [put('doc/1', 'TO BE'), put('doc/2')] })
    expect(await words.claimOne()).toMatchObject({ key: 'doc/2', kind: 'put', commit_ts: commitTs })
  })

  test('marks for other observers, deeper and deeper up to max_depth', async () => {
    const server = await start()
    const chain = await Observing.of(server, { prefix: 'doc/', max_depth: 2 })
    await server.put('doc/0', 'v')
    for (let i = 0; i < 3; i++) await chain.acked(await chain.claimOne(), { ops: [put(`doc/${i + 1}`)] })
    expect(await chain.claim()).toEqual([])
    const { parked } = okBody(await chain.send('GET', '/parked'))
    expect(parked).toMatchObject([{ key: 'doc/3', attempts: 0, error: expect.stringContaining('max_depth') }])
    expect(okBody(await chain.post('retry'))).toEqual({ retried: 1 })
    expect(await chain.claimOne()).toMatchObject({ key: 'doc/3' })
  })

  test('notifies at its commit_ts, without touching the row', async () => {
    const { server, words, claimed } = await startClaimed()
    const counts = await Observing.of(server, { prefix: 'count/' }, 'counts')
    const notify = [{ observer: 'counts', keys: ['count/1', 'count/2'] }]
    const commitTs = await words.acked(claimed, { notify })
    const marked = await counts.claim({ limit: 9, values: true })
    for (const one of marked) expect(one).toMatchObject({ kind: 'notified', commit_ts: commitTs, found: false })
    expect(marked.map(({ key }) => key).sort()).toEqual(notify[0]?.keys)
    expect((await server.mvcc('count/1'))['writes']).toEqual([])
  })

  test('a transaction may do no more than notify', async () => {
    const server = await start()
    const words = await Observing.of(server)
    const { commit_ts, results } = await server.txn({ notify: [{ observer: 'words', keys: ['doc/1'] }] })
    expect(results).toEqual([])
    expect(await words.claimOne()).toMatchObject({ key: 'doc/1', kind: 'notified', commit_ts })
  })

  test('is the same for two observers of one key, each with a cell of its own', async () => {
    const { server, words, claimed } = await startClaimed()
    const others = await Observing.of(server, { start: 'doc/1' }, 'others')
    await server.put('doc/1', 'or not')
    const other = await others.claimOne()
    const acks = [words.ackOf(claimed), others.ackOf(other)]
    await server.txn({ acks, ops: [put('doc/1', 'both')] })
    expect(await others.claim()).toEqual([])
    expect(await words.claimOne()).toMatchObject({ key: 'doc/1' }) // For the put behind its claim.
  })
})

describe('riders that are refused as such', () => {
  const FENCE = { fence: 5 }

  test.each<[string, Json, string, string]>([
    ['an unknown observer', { acks: [{ observer: 'nobody', key: 'doc/1', ...FENCE }] }, 'not_found', ''],
    ['a notification for one', { notify: [{ observer: 'nobody', keys: ['doc/1'] }] }, 'not_found', ''],
    ['a key outside', { acks: [{ observer: 'words', key: 'doc', ...FENCE }] }, 'invalid_argument', 'acks[0].key'],
    [
      'one to notify',
      { notify: [{ observer: 'words', keys: ['doc/', 'a'] }] },
      'invalid_argument',
      'notify[0].keys[1]',
    ],
    [
      'a fence of the future',
      { acks: [{ observer: 'words', key: 'doc/1', fence: 2 ** 53 - 1 }] },
      'invalid_argument',
      'acks[0].fence',
    ],
    ['no fence', { acks: [{ observer: 'words', key: 'doc/1' }] }, 'invalid_argument', 'acks[0].fence'],
    ['the fence 0', { acks: [{ observer: 'words', key: 'doc/1', fence: 0 }] }, 'invalid_argument', 'acks[0].fence'],
    ['an empty key', { acks: [{ observer: 'words', key: '', ...FENCE }] }, 'invalid_argument', 'acks[0].key'],
    [
      'a name that none has',
      { acks: [{ observer: 'a b', key: 'doc/1', ...FENCE }] },
      'invalid_argument',
      'acks[0].observer',
    ],
    [
      'one cell twice',
      { acks: [1, 2].map((fence) => ({ observer: 'words', key: 'doc/1', fence })) },
      'invalid_argument',
      'acks[1]',
    ],
    [
      'unknown fields',
      { acks: [{ observer: 'words', key: 'doc/1', ...FENCE, ts: 1 }] },
      'invalid_argument',
      'acks[0].ts',
    ],
    ['leases', { leases: [] }, 'invalid_argument', 'leases'],
    ['no list', { acks: {} }, 'invalid_argument', 'acks'],
  ])('%s', async (_, riders, code, field) => {
    const server = await start()
    await Observing.of(server)
    const fields = field === '' ? {} : { field }
    expectProblem(await server.post('/v1/txn', { ops: [put('a')], ...riders }), code, fields)
    const txn = `/v1/txn/${await begin(server)}`
    expectProblem(await server.post(`${txn}/commit`, riders), code, fields)
    expect(okBody(await server.get(txn))).toMatchObject({ state: 'open' }) // Nothing was done.
    expectProblem(await server.get('/v1/kv/a'), 'not_found')
  })

  test('more acknowledgements than a transaction may have, or keys to notify', { tags: ['long'] }, async () => {
    const server = await start({ limits: { requestKeysMax: 3000 } })
    const words = await Observing.of(server)
    const keys = Array.from({ length: 1001 }, (_, i) => `doc/${i}`)
    await server.txn({ ops: keys.slice(1).map((key) => put(key)) })
    const claims = await words.claim({ limit: 1000 })
    const acks = claims.map((one) => words.ackOf(one))
    const one = { observer: 'words', key: 'doc/0', fence: 1 }
    expectProblem(await server.post('/v1/txn', { acks: [...acks, one] }), 'payload_too_large', {
      field: 'acks',
      limit: 1000,
    })
    await server.txn({ acks })
    await expect.poll(() => words.cleaned()).toMatchObject({ acks: 1000, pending: 0 })
    const notify = [1, 2, 3].map(() => ({ observer: 'words', keys }))
    expectProblem(await server.post('/v1/txn', { notify }), 'payload_too_large', { field: 'notify', limit: 3000 })
    const long = [{ observer: 'words', keys: [...keys, ...keys, ...keys] }]
    expectProblem(await server.post('/v1/txn', { notify: long }), 'payload_too_large', { field: 'notify[0].keys' })
    await server.txn({ notify: notify.slice(1) })
    expect(await words.state()).toMatchObject({ pending: 1001 })
  })

  test('lists that say nothing are none', async () => {
    const server = await start()
    const answer = await server.txn({ acks: [], notify: [], ops: [{ op: 'get', key: 'a' }] })
    expect(answer).toEqual({ start_ts: expect.any(Number), results: [{ found: false }] })
  })
})

test('a failed check refuses the acknowledgement with its transaction', async () => {
  const { words, claimed } = await startClaimed()
  expectProblem(await words.ack(claimed, { checks: [{ key: 'x', exists: true }] }), 'precondition_failed')
  await words.acked(claimed, { checks: [{ key: 'x', exists: false }], ops: [{ op: 'get', key: 'doc/1' }] })
})

test('a serializable transaction carries riders too', async () => {
  const { words, claimed } = await startClaimed()
  const ops = [{ op: 'scan', prefix: 'doc/' }, put('count/1')]
  await words.acked(claimed, { isolation: 'serializable', ops })
  expect(await words.claim()).toEqual([])
})

describe('an Idempotency-Key', () => {
  const once = { 'idempotency-key': 'k' }

  test('gets the first answer again, where the acknowledgement itself would be refused', async () => {
    const { server, words, claimed } = await startClaimed()
    const body = { acks: [words.ackOf(claimed)], ops: [{ op: 'increment', key: 'n' }] }
    const first = await server.post('/v1/txn', body, once)
    expect(first.statusCode, first.body).toBe(200)
    await words.send('DELETE', '')
    const again = await server.post('/v1/txn', body, once)
    expect([again.body, again.headers['idempotency-replayed']]).toEqual([first.body, 'true'])
    expect((await server.get('/v1/kv/n')).body).toBe('1')
  })

  test('is stored for acknowledgements alone', async () => {
    const { server, words, claimed } = await startClaimed()
    const body = { acks: [words.ackOf(claimed)] }
    const first = await server.post('/v1/txn', body, once)
    const again = await server.post('/v1/txn', body, once)
    expect([again.statusCode, again.body]).toEqual([200, first.body])
  })

  test('is that of one request, riders included', async () => {
    const { server, words, claimed } = await startClaimed()
    const body = { ops: [put('a')], acks: [words.ackOf(claimed)] }
    okBody(await server.post('/v1/txn', body, once))
    const notify = [{ observer: 'words', keys: ['doc/2'] }]
    for (const other of [
      { ...body, acks: [] },
      { ...body, notify },
      { ...body, acks: [{ ...body.acks[0], fence: 5 }] },
    ])
      expectProblem(await server.post('/v1/txn', other, once), 'idempotency_mismatch')
  })

  test('of a refused one may be used again', async () => {
    const { server, words, claimed } = await startClaimed()
    await words.acked(claimed)
    const refused = { acks: [words.ackOf(claimed)] }
    for (let i = 0; i < 2; i++)
      expectProblem(await server.post('/v1/txn', refused, once), 'write_conflict', { reason: 'acknowledged' })
    okBody(await server.post('/v1/txn', { ops: [put('a')] }, once))
  })
})

async function begin(server: TestServer, options: Json = {}): Promise<string> {
  const answer = await server.post('/v1/txn/begin', options)
  expect(answer.statusCode, answer.body).toBe(201)
  return String(answer.json<Json>()['txn'])
}

describe('an interactive transaction', () => {
  for (const mode of ['optimistic', 'pessimistic'])
    test(`acknowledges at its commit what it has seen (${mode})`, async () => {
      const { server, words, claimed } = await startClaimed()
      const seen = await server.put('doc/1', 'or not') // After the claim, before the transaction.
      const txn = `/v1/txn/${await begin(server, { mode })}`
      expect((await server.get(`${txn}/kv/doc/1`)).headers['etag']).toBe(`"${seen}"`)
      await server.send('PUT', `${txn}/kv/count/1`, {}, '2')
      const acks = [words.ackOf(claimed)]
      const { commit_ts } = okBody(await server.post(`${txn}/commit`, { acks }))
      expect((await server.get('/v1/kv/count/1')).headers['etag']).toBe(`"${commit_ts}"`)
      expect(await words.claim()).toEqual([])
      expect(okBody(await server.post(`${txn}/commit`, { acks }))).toEqual({ commit_ts })
      expect(okBody(await server.post(`${txn}/commit`, {}))).toEqual({ commit_ts })
    })

  test('that wrote nothing but acknowledges has a commit_ts', async () => {
    const { server, words, claimed } = await startClaimed()
    const begun = (await server.post('/v1/txn/begin', {})).json<Json>()
    const answer = okBody(await server.post(`/v1/txn/${begun['txn']}/commit`, { acks: [words.ackOf(claimed)] }))
    expect(numberOf(answer, 'commit_ts')).toBeGreaterThan(numberOf(begun, 'start_ts'))
    await expect.poll(() => words.cleaned()).toMatchObject({ acks: 1, pending: 0 })
  })

  test('is over when its acknowledgement is refused', async () => {
    const { server, words, claimed } = await startClaimed()
    const txn = `/v1/txn/${await begin(server)}`
    await server.send('PUT', `${txn}/kv/count/1`, {}, '2')
    await words.acked(claimed)
    const acks = [words.ackOf(claimed)]
    const refused = { reason: 'acknowledged', retryable: false }
    expectRefused(await server.post(`${txn}/commit`, { acks }), refused)
    expect(okBody(await server.get(txn))).toMatchObject({ state: 'rolled_back' })
    expectRefused(await server.post(`${txn}/commit`, { acks }), refused)
    expectProblem(await server.get('/v1/kv/count/1'), 'not_found')
  })

  test('that began before the claim has seen no more than its snapshot', async () => {
    const server = await start()
    const words = await Observing.of(server)
    const txn = `/v1/txn/${await begin(server)}`
    await server.put('doc/1', 'to be')
    const acks = [words.ackOf(await words.claimOne())]
    expectRefused(await server.post(`${txn}/commit`, { acks }), { reason: 'acknowledged', retryable: true })
  })

  test('notifies at its commit', async () => {
    const server = await start()
    const words = await Observing.of(server)
    const txn = `/v1/txn/${await begin(server)}`
    const answer = await server.post(`${txn}/commit`, { notify: [{ observer: 'words', keys: ['doc/1'] }] })
    expect(await words.claimOne()).toMatchObject({ kind: 'notified', commit_ts: okBody(answer)['commit_ts'] })
  })

  test('under an Idempotency-Key is the same request only with the same riders', async () => {
    const { server, words, claimed } = await startClaimed()
    const txn = `/v1/txn/${await begin(server)}`
    const acks = [words.ackOf(claimed)]
    const once = { 'idempotency-key': 'k' }
    const { commit_ts } = okBody(await server.post(`${txn}/commit`, { acks }, once))
    await words.send('DELETE', '')
    const again = await server.post(`${txn}/commit`, { acks }, once)
    expect([okBody(again), again.headers['idempotency-replayed']]).toEqual([{ commit_ts }, 'true'])
    expectProblem(await server.post(`${txn}/commit`, {}, once), 'idempotency_mismatch')
  })
})

describe('a prewrite', () => {
  const prewrite = (server: TestServer, body: Json): Promise<Sent> =>
    server.call('prewrite', { primary: 'doc/1', try_one_pc: true, ...body })

  test('commits with its riders, and answers a repeat with the same commit_ts', async () => {
    const { server, words, claimed } = await startClaimed()
    const { ts: start_ts } = await server.ok('tso', {})
    const riders = { acks: [words.ackOf(claimed)] }
    for (const mutations of [[{ op: 'put', key: 'count/1', value: '2' }]]) {
      const body = { mutations, primary: 'count/1', start_ts, riders }
      const first = okBody(await prewrite(server, body))
      expect(first['one_pc_commit_ts']).toBeGreaterThan(numberOf({ start_ts }, 'start_ts'))
      expect(okBody(await prewrite(server, body))).toEqual(first)
    }
    await expect.poll(() => words.cleaned()).toMatchObject({ acks: 1, pending: 0 })
  })

  test('of riders alone does so too', async () => {
    const { server, words, claimed } = await startClaimed()
    const { ts: start_ts } = await server.ok('tso', {})
    const body = { mutations: [], start_ts, riders: { acks: [words.ackOf(claimed)] } }
    const first = okBody(await prewrite(server, body))
    expect(okBody(await prewrite(server, body))).toEqual(first)
    const { ts: later } = await server.ok('tso', {})
    const refused = { reason: 'acknowledged', retryable: false, conflict_start_ts: start_ts }
    expectRefused(await prewrite(server, { ...body, start_ts: later }), refused)
  })

  test('has seen its start_ts', async () => {
    const { server, words, claimed } = await startClaimed()
    await server.put('doc/1', 'or not')
    const { ts: start_ts } = await server.ok('tso', {})
    okBody(await prewrite(server, { mutations: [], start_ts, riders: { acks: [words.ackOf(claimed)] } }))
    expect(await words.claim()).toEqual([])
  })

  test.each<[string, Json, string]>([
    ['without try_one_pc', { try_one_pc: false }, 'riders'],
    ['with max_commit_ts', { max_commit_ts: 2 ** 52 }, 'riders'],
    ['with a rider that is not known', { riders: { locks: [] } }, 'riders.locks'],
    ['without anything', { riders: {}, mutations: [] }, 'mutations'],
    ['without anything in its lists', { riders: { acks: [], notify: [], positions: [] }, mutations: [] }, 'mutations'],
    [
      'with one cell twice',
      { riders: { acks: [1, 2].map((fence) => ({ observer: 'words', key: 'doc/1', fence })) } },
      'riders.acks[1]',
    ],
  ])('%s is refused', async (_, rest, field) => {
    const { server, words, claimed } = await startClaimed()
    const mutations = [{ op: 'put', key: 'doc/1', value: '2' }]
    const body = { mutations, start_ts: claimed.fence, riders: { acks: [words.ackOf(claimed)] }, ...rest }
    expectProblem(await prewrite(server, body), 'invalid_argument', { field })
    expect(await server.lockCount()).toBe(0)
    await words.acked(claimed)
  })

  test('treats each key as its pessimistic actions say', async () => {
    const { server, words, claimed } = await startClaimed()
    await server.put('before', '1')
    const begin = async (): Promise<Json> => {
      const { ts: start_ts } = await server.ok('tso', {})
      await server.put('since', '1')
      const { ts: for_update_ts } = await server.ok('tso', {})
      return { start_ts, for_update_ts }
    }
    const of = (txn: Json, pessimistic_actions: string[], mutations: Json[]): Promise<Sent> =>
      prewrite(server, {
        ...{ ...txn, pessimistic_actions, mutations, primary: mutations[0]?.['key'] },
        riders: { acks: [words.ackOf(claimed)] },
      })
    const inserted = await of(await begin(), ['constraint'], [{ ...put('before'), op: 'insert' }])
    expectProblem(inserted, 'already_exists', { key: 'before' })
    const checked = await of(await begin(), ['constraint'], [put('since')])
    expectProblem(checked, 'write_conflict', { key: 'since', reason: 'lazy_uniqueness_check' })
    const unlocked = await of(await begin(), ['do'], [put('since')])
    expectProblem(unlocked, 'pessimistic_lock_not_found', { key: 'since' })
    const txn = await begin()
    await server.ok('acquire_pessimistic_lock', { ...txn, primary: 'before', keys: ['before'] })
    okBody(await of(txn, ['do', 'skip'], [put('before', '2'), put('since', '2')]))
    for (const key of ['before', 'since']) expect((await server.get(`/v1/kv/${key}`)).body).toBe('2')
    await expect.poll(() => words.cleaned()).toMatchObject({ acks: 1, pending: 0 })
  })

  test('with skip_constraint_check ignores newer versions of other keys, or is refused where acknowledgements are rows', async () => {
    const { server, words, claimed } = await startClaimed()
    const { ts: start_ts } = await server.ok('tso', {})
    await server.put('count/1', '1')
    const rest = { skip_constraint_check: true, riders: { acks: [words.ackOf(claimed)] } }
    const answer = await prewrite(server, { mutations: [put('count/1', '2')], primary: 'count/1', start_ts, ...rest })
    const isRefused = TEST_STORE === 'bigtable'
    if (isRefused) expectProblem(answer, 'invalid_argument', { field: 'skip_constraint_check' })
    else okBody(answer)
    expect((await server.get('/v1/kv/count/1')).body).toBe(isRefused ? '1' : '2')
    expect(await server.lockCount()).toBe(0)
  })

  test('commits above min_commit_ts, which is not ahead of the clock', async () => {
    const { server, words, claimed } = await startClaimed()
    const { ts: start_ts } = await server.ok('tso', {})
    const body = { mutations: [put('count/1')], primary: 'count/1', start_ts, riders: { acks: [words.ackOf(claimed)] } }
    const min_commit_ts = numberOf({ start_ts }, 'start_ts') + 10_000 * 2 ** 11
    expectProblem(await prewrite(server, { ...body, min_commit_ts }), 'invalid_argument', { field: 'riders' })
    expect(await server.lockCount()).toBe(0)
    const { ts: reached } = await server.ok('tso', {})
    const { one_pc_commit_ts } = okBody(await prewrite(server, { ...body, min_commit_ts: reached }))
    expect(one_pc_commit_ts).toBeGreaterThanOrEqual(Number(reached))
  })

  test('of an unknown observer is 404', async () => {
    const { server, claimed } = await startClaimed()
    const riders = { acks: [{ observer: 'nobody', key: 'doc/1', fence: claimed.fence }] }
    expectProblem(await prewrite(server, { mutations: [], start_ts: claimed.fence, riders }), 'not_found')
  })
})

test('of two that acknowledge one cell at the same time one commits', async () => {
  const { server, words, claimed } = await startClaimed()
  const tries = Array.from({ length: 20 }, () => words.ack(claimed, { ops: [{ op: 'increment', key: 'n' }] }))
  const answers = await Promise.all(tries)
  expect(answers.filter(({ statusCode }) => statusCode === 200)).toHaveLength(1)
  for (const answer of answers)
    if (answer.statusCode !== 200) expectRefused(answer, { reason: 'acknowledged', retryable: false })
  expect((await server.get('/v1/kv/n')).body).toBe('1')
})

test('the failure of a run is forgotten with the run that commits', async () => {
  const { server, words, claimed } = await startClaimed({ backoff_ms: 0 })
  await words.release([claimed], { error: 'no title' })
  const second = (await words.claim({ wait_ms: 5000 }))[0] as Claimed
  expect(second.attempt).toBe(2)
  await words.acked(second)
  await server.put('doc/1', 'again')
  expect(await words.claimOne()).toMatchObject({ attempt: 1 })
  expect(listOf(okBody(await words.send('GET', '/parked')), 'parked')).toEqual([])
})
