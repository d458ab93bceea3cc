import { expect, test } from 'vitest'
import { expectProblem, numberOf, okBody, testServers } from './support.js'

const start = testServers()
const URL = '/v1/kv/batch_get'

test('pairs of one snapshot; absent keys are left out; a key asked for twice is answered once', async () => {
  const server = await start()
  const first = await server.put('a', '1')
  await server.put('b', '2')
  const body = okBody(await server.post(URL, { keys: ['b', 'nobody', 'a', { base64: 'YQ==' }] }))
  expect(body['pairs']).toHaveLength(2)
  expect(body['pairs']).toEqual(
    expect.arrayContaining([
      { key: 'a', value: '1', commit_ts: first },
      { key: 'b', value: '2', commit_ts: expect.any(Number) },
    ]),
  )
  expect(numberOf(body, 'ts')).toBeGreaterThanOrEqual(first)
  expect(okBody(await server.post(URL, { keys: ['a', 'b'], ts: first }))).toEqual({
    pairs: [{ key: 'a', value: '1', commit_ts: first }],
    ts: first,
  })
  expect(numberOf(okBody(await server.post(URL, { keys: ['a'], ts: 0 })), 'ts')).toBeGreaterThan(first)
})

test('the key batch_get is a key like any other', async () => {
  const server = await start()
  await server.put('batch_get', 'v')
  expect((await server.get(URL)).body).toBe('v')
  expect(okBody(await server.post(URL, { keys: ['batch_get'] }))['pairs']).toHaveLength(1)
  okBody(await server.send('DELETE', URL))
})

test('many keys at once', { tags: ['long'] }, async () => {
  const server = await start()
  const keys = Array.from({ length: 3000 }, (_, i) => `k${i}`)
  await server.txn({ ops: keys.map((key) => ({ op: 'put', key, value: key })) })
  expect(okBody(await server.post(URL, { keys }))['pairs']).toHaveLength(3000)
})

for (const body of [{}, { keys: [] }, { keys: 'a' }, { keys: [1] }, { keys: [null] }, { keys: [''] }, { key: 'a' }])
  test(`${JSON.stringify(body)} is 400`, async () => {
    const server = await start()
    expectProblem(await server.post(URL, body), 'invalid_argument')
  })

test('ts and limits', async () => {
  const server = await start()
  for (const ts of [-1, 1.5, '5', null, 2 ** 53])
    expectProblem(await server.post(URL, { keys: ['a'], ts }), 'invalid_argument', { field: 'ts' })
  expectProblem(await server.post(URL, { keys: ['a'.repeat(4097)] }), 'payload_too_large')
  expectProblem(await server.post(`${URL}?ts=5`, { keys: ['a'] }), 'invalid_argument')
})
