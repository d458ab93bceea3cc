import { expect, test } from 'vitest'
import { okBody, type Sent, testServers } from './support.js'

const startServer = testServers()

/** As a client does it: on a busy machine the tries of the server may be over before its turn has come. */
async function untilDecided(send: () => Promise<Sent>): Promise<Sent> {
  for (;;) {
    const answer = await send()
    if (answer.statusCode !== 409 || answer.json().retryable !== true) return answer
  }
}

/** Each scans a range and writes a key of its own into it: in any serial order each sees one key more than the last. */
async function scanAndWrite(isolation: string | undefined): Promise<number[]> {
  const server = await startServer()
  const answers = await Promise.all(
    Array.from({ length: 12 }, (_, i) =>
      untilDecided(() =>
        server.post('/v1/txn', {
          ...(isolation && { isolation }),
          ops: [
            { op: 'scan', prefix: 'on-call/' },
            { op: 'put', key: `on-call/${i}`, value: '1' },
          ],
        }),
      ),
    ),
  )
  const inCommitOrder = answers.map(okBody).sort((a, b) => Number(a['commit_ts']) - Number(b['commit_ts']))
  return inCommitOrder.map(({ results }) => (results as [{ pairs: unknown[] }])[0].pairs.length)
}

test('serializable: no phantom, in commit order', async () => {
  expect(await scanAndWrite('serializable')).toEqual(Array.from({ length: 12 }, (_, i) => i))
})

test('snapshot, the default', { tags: ['long'] }, async () => {
  for (const isolation of [undefined, 'snapshot']) expect(await scanAndWrite(isolation)).toHaveLength(12)
})

test('serializable writers run beside everything else, and nothing waits for ever', { tags: ['long'] }, async () => {
  const server = await startServer()
  const ops = [{ op: 'increment', key: 'n' }]
  const mixed = Array.from({ length: 90 }, (_, i) => {
    const isolation = 'serializable'
    if (i % 3 === 0)
      return untilDecided(() => server.post('/v1/txn', { ops: [...ops, { op: 'scan', prefix: '' }], isolation }))
    if (i % 3 === 1) return untilDecided(() => server.post('/v1/txn', { ops, isolation }))
    return untilDecided(() => server.post('/v1/txn', { ops }, { 'idempotency-key': `${i}` }))
  })
  for (const answer of await Promise.all(mixed)) expect(answer.statusCode).toBe(200)
  expect((await server.get('/v1/kv/n')).body).toBe('90')
})

test('a serializable transaction waits for the lock of another, and refuses what is no isolation', async () => {
  const server = await startServer()
  await server.lock(5, ['on-call/a'], { lock_ttl: 1 })
  const body = {
    isolation: 'serializable',
    ops: [
      { op: 'scan', prefix: 'on-call/' },
      { op: 'put', key: 'b', value: '1' },
    ],
  }
  expect((await server.post('/v1/txn', body)).json().results[0]).toEqual({ pairs: [] }) // It is rolled back first.
  const other = await server.post('/v1/txn', { ...body, isolation: 'read committed' })
  expect([other.statusCode, other.json().field]).toEqual([400, 'isolation'])
})
