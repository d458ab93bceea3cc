import { createHmac } from 'node:crypto'
import { expect, test } from 'vitest'
import { decodeAnswer, decodeAsk, encodeAnswer, encodeAsk } from '../../../../src/oracle/signed-ask.js'
import {
  CIRCLE_BYTES_MAX,
  costOf,
  ENDED_MAX,
  LOCK_WAITS,
  REPORT_BYTES_MAX,
  type WaitAsk,
} from '../../../../src/store/table/waits/wait-report.js'

const SECRET = new Uint8Array(32).fill(7)
const URL = 'http://server-1:8080'
const LATE = 2 ** 53 - 1
const KEY = Uint8Array.of(0, 255, 128, 65)
const WAIT = { txn: 3_400_000_000_000_000, waitForTxn: LATE, key: KEY }
const ASK: WaitAsk = {
  ...{ server: 'a', graph: 'g', sequence: 4 },
  waits: [
    { id: 1, wait: { ...WAIT, key: Buffer.from(KEY) } },
    { id: 2, wait: { ...WAIT, key: Buffer.alloc(0) } },
  ],
  ended: [3],
}

test('an ask and the answers arrive as they were', () => {
  const asked = { url: URL, nonce: 'n', ask: ASK }
  expect(decodeAsk(LOCK_WAITS, SECRET, URL, encodeAsk(LOCK_WAITS, SECRET, asked))).toEqual(asked)
  const circles = [{ id: 1, circle: [ASK.waits[0]?.wait ?? WAIT, ASK.waits[1]?.wait ?? WAIT] }]
  for (const answer of [{ graph: 'g', circles }, { graph: 'g', circles: [] }, 'not_leader' as const])
    expect(decodeAnswer(LOCK_WAITS, SECRET, 'n', encodeAnswer(LOCK_WAITS, SECRET, 'n', answer))).toEqual(answer)
})

test('the longest report and the longest answer fit', () => {
  const url = `http://${'u'.repeat(2041)}`
  const wait = (length: number) => ({ txn: LATE, waitForTxn: LATE, key: new Uint8Array(length) })
  for (const length of [0, 1, 8, 4095]) {
    const count = Math.floor(REPORT_BYTES_MAX / costOf(wait(length)))
    expect(count).toBeGreaterThan(0)
    const ask: WaitAsk = {
      ...{ server: 's'.repeat(36), graph: 'g'.repeat(36), sequence: LATE },
      waits: Array.from({ length: count }, () => ({ id: LATE, wait: wait(length) })),
      ended: Array.from({ length: ENDED_MAX }, () => LATE),
    }
    const bytes = encodeAsk(LOCK_WAITS, SECRET, { url, nonce: 'n'.repeat(22), ask })
    expect(bytes.length).toBeLessThanOrEqual(LOCK_WAITS.askBytesMax)
    expect(decodeAsk(LOCK_WAITS, SECRET, url, bytes)?.ask.waits).toHaveLength(count)
    const each = Math.floor(CIRCLE_BYTES_MAX / costOf(wait(length)) / 2)
    const circles = Array.from({ length: each }, () => ({ id: LATE, circle: [wait(length), wait(length)] }))
    const answer = encodeAnswer(LOCK_WAITS, SECRET, 'n'.repeat(22), { graph: 'g'.repeat(36), circles })
    expect(answer.length).toBeLessThanOrEqual(LOCK_WAITS.answerBytesMax)
  }
})

const WHOLE = { server: 'a', graph: 'g', sequence: 4, waits: [[1, 2, 3, 'aw==']], ended: [] }

test.each<[string, object]>([
  ['no server', { ...WHOLE, server: 1 }],
  ['a long name', { ...WHOLE, server: 'a'.repeat(200) }],
  ['no graph', { ...WHOLE, graph: null }],
  ['no sequence', { ...WHOLE, sequence: -1 }],
  ['no waits', { ...WHOLE, waits: {} }],
  ['a wait that is none', { ...WHOLE, waits: [null] }],
  ['a wait without a key', { ...WHOLE, waits: [[1, 2, 3]] }],
  ['a wait with more', { ...WHOLE, waits: [[1, 2, 3, 'aw==', 5]] }],
  ['a wait of no transaction', { ...WHOLE, waits: [[1, 2.5, 3, 'aw==']] }],
  ['a wait without a number', { ...WHOLE, waits: [['1', 2, 3, 'aw==']] }],
  ['an end of no number', { ...WHOLE, ended: [null] }],
  ['no ends', { ...WHOLE, ended: 3 }],
])('an ask with %s is refused though it is signed', (_, fields) => {
  const body = Buffer.from(JSON.stringify({ ...fields, url: URL, nonce: 'n' }))
  const signed = (bytes: Buffer) =>
    Buffer.concat([createHmac('sha256', SECRET).update('ask for lock-waits\0').update(bytes).digest(), bytes])
  expect(decodeAsk(LOCK_WAITS, SECRET, URL, signed(body))).toBeUndefined()
  const whole = Buffer.from(JSON.stringify({ ...WHOLE, url: URL, nonce: 'n' }))
  expect(decodeAsk(LOCK_WAITS, SECRET, URL, signed(whole))).toBeDefined()
})

test.each<[object]>([
  [{ graph: 'g' }],
  [{ circles: [] }],
  [{ graph: 'g', circles: [{ id: 1, circle: [] }] }],
  [{ graph: 'g', circles: [{ id: 1, circle: [[1, 2, 'aw==']] }] }],
  [
    {
      graph: 'g',
      circles: [
        {
          circle: [
            [1, 2, 'aw=='],
            [2, 1, 'aw=='],
          ],
        },
      ],
    },
  ],
  [{ graph: 'g', circles: [null] }],
])('an answer of %j is refused though it is signed', (fields) => {
  const body = Buffer.from(JSON.stringify({ ...fields, nonce: 'n' }))
  const mac = createHmac('sha256', SECRET).update('answer with lock-waits\0').update(body).digest()
  expect(decodeAnswer(LOCK_WAITS, SECRET, 'n', Buffer.concat([mac, body]))).toBeUndefined()
})
