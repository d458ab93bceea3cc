import { createHmac } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { answering, decodeAnswer, decodeAsk, encodeAnswer, encodeAsk, newNonce } from '../../src/oracle/signed-ask.js'
import { ASK_COUNT_MAX, TIMESTAMPS } from '../../src/oracle/timestamp-ask.js'

const SECRET = new Uint8Array(32).fill(7)
const OTHER_SECRET = new Uint8Array(32).fill(8)
const URL = 'http://server-1:8080'

function changed(bytes: Uint8Array, at: number): Uint8Array {
  const copy = Uint8Array.from(bytes)
  copy[at] = (copy[at] ?? 0) ^ 1
  return copy
}

/** As a server of another version would sign it. */
function signed(purpose: string, body: string): Uint8Array {
  return Buffer.concat([createHmac('sha256', SECRET).update(`${purpose}\0`).update(body).digest(), Buffer.from(body)])
}

describe('an ask', () => {
  const asked = { url: URL, nonce: newNonce(), ask: { count: 12, floor: 3_400_000_000_000_000 } }
  const bytes = encodeAsk(TIMESTAMPS, SECRET, asked)

  test('arrives as it was', () => {
    expect(decodeAsk(TIMESTAMPS, SECRET, URL, bytes)).toEqual(asked)
  })

  test('with any bit changed is refused', () => {
    for (let at = 0; at < bytes.length; at++)
      expect(decodeAsk(TIMESTAMPS, SECRET, URL, changed(bytes, at))).toBeUndefined()
  })

  test('for another server, under another secret, cut off, or too long is refused', () => {
    expect(decodeAsk(TIMESTAMPS, SECRET, 'http://server-2:8080', bytes)).toBeUndefined()
    expect(decodeAsk(TIMESTAMPS, OTHER_SECRET, URL, bytes)).toBeUndefined()
    for (const end of [0, 1, 31, 32, 33, bytes.length - 1])
      expect(decodeAsk(TIMESTAMPS, SECRET, URL, bytes.subarray(0, end))).toBeUndefined()
    const long = encodeAsk(TIMESTAMPS, SECRET, { ...asked, nonce: 'n'.repeat(TIMESTAMPS.askBytesMax) })
    expect(decodeAsk(TIMESTAMPS, SECRET, URL, long)).toBeUndefined()
  })

  test('is not an answer, and an answer is not an ask', () => {
    expect(decodeAnswer(TIMESTAMPS, SECRET, asked.nonce, bytes)).toBeUndefined()
    const answer = encodeAnswer(TIMESTAMPS, SECRET, asked.nonce, { last: 1, nowMs: 1 })
    expect(decodeAsk(TIMESTAMPS, SECRET, URL, answer)).toBeUndefined()
  })

  test.each([
    { count: -1, floor: 0 },
    { count: 1.5, floor: 0 },
    { count: ASK_COUNT_MAX + 1, floor: 0 },
    { count: 1, floor: -1 },
    { count: 1, floor: 2 ** 53 },
    { count: '1', floor: 0 },
    { count: 1 },
  ])('of %j is refused though it is signed', (ask) => {
    const body = JSON.stringify({ url: URL, nonce: 'n', ...ask })
    expect(decodeAsk(TIMESTAMPS, SECRET, URL, signed('ask for timestamps', body))).toBeUndefined()
  })

  test('of one kind is none of another', () => {
    const other = { ...TIMESTAMPS, name: 'other' }
    expect(decodeAsk(other, SECRET, URL, bytes)).toBeUndefined()
    expect(decodeAsk(other, SECRET, URL, encodeAsk(other, SECRET, asked))).toEqual(asked)
    expect(decodeAnswer(other, SECRET, 'n', encodeAnswer(TIMESTAMPS, SECRET, 'n', 'not_leader'))).toBeUndefined()
  })

  test('is answered, unless it is refused', async () => {
    const { answer, ...rest } = answering(TIMESTAMPS, SECRET, URL, async ({ count }) =>
      count === 12 ? ('not_leader' as const) : undefined,
    )
    expect(rest).toEqual({ name: 'timestamps', askBytesMax: TIMESTAMPS.askBytesMax })
    const answered = await answer(bytes)
    expect(decodeAnswer(TIMESTAMPS, SECRET, asked.nonce, answered ?? bytes)).toBe('not_leader')
    expect(await answer(encodeAsk(TIMESTAMPS, SECRET, { ...asked, ask: { count: 13, floor: 0 } }))).toBeUndefined()
    expect(await answer(changed(bytes, 40))).toBeUndefined()
  })

  test.each(['', 'null', '1', '[', '{}'])('whose signed body is %j is refused', (body) => {
    expect(decodeAsk(TIMESTAMPS, SECRET, URL, signed('ask for timestamps', body))).toBeUndefined()
  })
})

describe('an answer', () => {
  const nonce = newNonce()

  test.each([{ last: 3_400_000_000_000_000, nowMs: 1_700_000_000_000 }, 'not_leader' as const])(
    'of %j arrives as it was, with its own nonce alone',
    (answer) => {
      const bytes = encodeAnswer(TIMESTAMPS, SECRET, nonce, answer)
      expect(decodeAnswer(TIMESTAMPS, SECRET, nonce, bytes)).toEqual(answer)
      expect(decodeAnswer(TIMESTAMPS, SECRET, newNonce(), bytes)).toBeUndefined()
      expect(decodeAnswer(TIMESTAMPS, OTHER_SECRET, nonce, bytes)).toBeUndefined()
      for (let at = 0; at < bytes.length; at++)
        expect(decodeAnswer(TIMESTAMPS, SECRET, nonce, changed(bytes, at))).toBeUndefined()
    },
  )

  test.each([{ last: 1 }, { last: 1.5, now_ms: 1 }, { last: 2 ** 53, now_ms: 1 }, {}])(
    'of %j is refused though it is signed',
    (fields) => {
      const bytes = signed('answer with timestamps', JSON.stringify({ nonce, ...fields }))
      expect(decodeAnswer(TIMESTAMPS, SECRET, nonce, bytes)).toBeUndefined()
    },
  )
})
