import { afterEach, expect, test } from 'vitest'
import { Database } from '../../../src/database/database.js'
import { createApp } from '../../../src/http/app.js'
import { DEFAULT_LIMITS } from '../../../src/limits.js'
import { answering, decodeAnswer, encodeAsk, newNonce } from '../../../src/oracle/signed-ask.js'
import { createLog } from '../../../src/server/log.js'
import { openMemoryStore } from '../../../src/store/leveldb/leveldb-store.js'
import { LeadingGraph } from '../../../src/store/table/waits/leading-graph.js'
import { LOCK_WAITS, type WaitAsk } from '../../../src/store/table/waits/wait-report.js'
import { utf8 } from '../../store/support.js'

const SECRET = new Uint8Array(32).fill(7)
const URL = 'http://server-1:7400'
const PATH = '/v1/internal/lock-waits'

const ends: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0)) await end()
})

/** A server that leads, with a token file, so that it shows what no token is needed for. */
async function start() {
  const leading = new LeadingGraph(() => 1)
  const database = await Database.open(await openMemoryStore(), { limits: DEFAULT_LIMITS, onError: () => {} })
  const member = {
    ...{ id: 'one', role: { role: 'leader', leader: URL, epoch: 1 } },
    answers: [answering(LOCK_WAITS, SECRET, URL, async (ask) => leading.answer(ask))],
  }
  const log = createLog('silent')
  const app = await createApp({
    ...{ database, limits: DEFAULT_LIMITS, version: '1', durability: 'async', log, member },
    authenticate: () => undefined,
  })
  ends.push(async () => {
    await app.close()
    await database.close()
  })
  const post = (payload: Uint8Array | string, type = 'application/octet-stream') =>
    app.inject({ method: 'POST', url: PATH, headers: { 'content-type': type }, payload: Buffer.from(payload) })
  return { leading, app, post }
}

const askOf = (graph: string, sequence: number): WaitAsk => ({
  ...{ server: 'two', graph, sequence, ended: [] },
  waits: [{ id: sequence, wait: { txn: 10 + sequence, waitForTxn: 10, key: utf8('k') } }],
})
const signed = (ask: WaitAsk, url = URL, secret = SECRET): Uint8Array =>
  encodeAsk(LOCK_WAITS, secret, { url, nonce: newNonce(), ask })

test('a report is taken from a server of the table alone, once, and what is refused changes nothing', {
  tags: ['long'],
}, async () => {
  const { leading, post } = await start()
  const nonce = newNonce()
  const first = await post(encodeAsk(LOCK_WAITS, SECRET, { url: URL, nonce, ask: askOf('', 1) }))
  expect(first.headers['content-type']).toBe('application/octet-stream')
  const answer = decodeAnswer(LOCK_WAITS, SECRET, nonce, first.rawPayload)
  if (answer === undefined || answer === 'not_leader') throw new Error('it does not lead')
  const { graph } = answer
  expect(leading.size).toBe(0)
  const taken = signed(askOf(graph, 2))
  expect((await post(taken)).statusCode).toBe(200)
  expect(leading.size).toBe(1)
  const next = askOf(graph, 3)
  const bad = Buffer.from(signed(next))
  bad[40] = (bad[40] ?? 0) ^ 1
  const refused: readonly (readonly [Uint8Array | string, number, string?])[] = [
    [taken, 403],
    [signed(askOf(graph, 1)), 403],
    [bad, 403],
    [signed(next, 'http://server-2:7400'), 403],
    [signed(next, URL, new Uint8Array(32)), 403],
    ['', 403],
    ['{}', 415, 'application/json'],
    [Buffer.alloc(LOCK_WAITS.askBytesMax + 1), 413],
    [Buffer.alloc(LOCK_WAITS.askBytesMax), 403],
  ]
  for (const [body, status, type] of refused) {
    const { statusCode, headers } = await post(body, type)
    expect({ body, statusCode }).toEqual({ body, statusCode: status })
    expect(headers['content-type']).toMatch(/^application\/problem\+json/)
  }
  expect(leading.size).toBe(1)
  expect((await post(signed(next))).statusCode).toBe(200)
  expect(leading.size).toBe(2)
})

test('other routes need a token, and nobody else is told of this one', async () => {
  const { app } = await start()
  expect((await app.inject('/v1/status')).statusCode).toBe(401)
  const reference = await app.inject('/openapi.json')
  expect(reference.statusCode).toBe(200)
  expect(reference.body).not.toContain('/v1/internal')
})
