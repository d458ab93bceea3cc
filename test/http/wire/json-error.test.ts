import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { JSON_AT_ONCE_BYTES_MAX } from '../../../src/http/admission/body-parsers.js'
import { jsonErrorAt, placeIn } from '../../../src/http/wire/json-error.js'
import { expectProblem, testServers } from '../support.js'

const start = testServers()

describe('where a text stops being JSON', () => {
  test.each([
    ['{"a":1,}', 7],
    ['{"a" 1}', 5],
    ['{"a":}', 5],
    ["{'a':1}", 1],
    ['{a:1}', 1],
    ['[1,,2]', 3],
    ['[1 2]', 3],
    ['[1}', 2],
    ['{"a":1]', 6],
    ['{}{}', 2],
    [']', 0],
    [',', 0],
    ['', 0],
    ['  ', 2],
    ['{"a":', 5],
    ['"abc', 4],
    ['"a\nb"', 2],
    ['"\\x"', 2],
    ['"\\u12g4"', 5],
    ['"\\u12', 5],
    ['"\\', 2],
    ['tru', 0],
    ['nul]', 0],
    ['01', 1],
    ['1.', 1],
    ['-', 0],
    ['.5', 0],
    ['NaN', 0],
    ['1e', 1],
    ['\u00a01', 0],
    ['[{"a":[{"b":[]}]}]', undefined],
    ['\ufeff{"a":null}', undefined],
    [' -0.5e+3 ', undefined],
    ['"\\u00e9\\n"', undefined],
  ])('%j: %s', (text, index) => {
    expect(jsonErrorAt(text)).toBe(index)
  })

  test('says of every text what JSON.parse says', { tags: ['long'] }, () => {
    const damaged = fc
      .tuple(
        fc.json(),
        fc.nat(),
        fc.nat(3),
        fc.constantFrom('', ',', '"', '}', ']', '[', '{', '\\', '\n', '0', ':', 'x', ' '),
      )
      .map(([text, at, cut, put]) => {
        const place = at % (text.length + 1)
        return text.slice(0, place) + put + text.slice(place + cut)
      })
    fc.assert(
      fc.property(damaged, (text) => {
        let said: string | undefined
        try {
          JSON.parse(text)
        } catch (error) {
          said = (error as Error).message
        }
        const index = jsonErrorAt(text)
        expect(index === undefined, `${text}: ${said}`).toBe(said === undefined)
        if (index === undefined) return
        // What is before it is the beginning of some JSON.
        expect(index).toBeLessThanOrEqual(text.length)
        expect([index, undefined]).toContain(jsonErrorAt(text.slice(0, index)))
      }),
      { numRuns: 3000 },
    )
  })

  test('takes time in proportion to the text', () => {
    const hostile = [
      '['.repeat(1e6),
      '"'.repeat(1e6),
      `["${'\\'.repeat(1e6)}`,
      '1'.repeat(1e6),
      ' '.repeat(1e6),
      '{"a":'.repeat(1e6),
    ]
    const begin = performance.now()
    for (const text of hostile) expect(jsonErrorAt(`${text}x`)).toBeLessThanOrEqual(text.length + 1)
    expect(performance.now() - begin).toBeLessThan(10_000)
  })

  test('lines and columns begin at 1', () => {
    expect(placeIn('', 0)).toEqual({ line: 1, column: 1 })
    expect(placeIn('{\n  "a": x', 9)).toEqual({ line: 2, column: 8 })
    expect(placeIn('{\r\n\n', 4)).toEqual({ line: 3, column: 1 })
  })
})

describe('a body that is not JSON', () => {
  test.each([
    ['{"ops": [\n  {"op": "get", "key": "a",}\n]}', 'line 2, column 28'],
    ['{"ops": [', 'line 1, column 10'],
    ["{'ops': []}", 'line 1, column 2'],
  ])('%j is refused with the place: %s', async (body, place) => {
    const server = await start()
    const answer = await server.send('POST', '/v1/txn', { 'content-type': 'application/json' }, body)
    const { detail } = expectProblem(answer, 'invalid_argument', { field: 'body' })
    expect(detail).toContain(place)
    expect(String(detail).length).toBeLessThan(100)
  })

  test.each([
    '\ufeff{"ops": []}',
    '{"ops": [\n  {"op": "get", "key": "a",}\n]}',
    '{"ops": [\r\n',
    '{"ops": [{"op": "put", "key": "\\x"}]}',
  ])('%j is answered alike however long it is', async (body) => {
    const server = await start()
    const send = (text: string) => server.send('POST', '/v1/txn', { 'content-type': 'application/json' }, text)
    const padded = `${body}${' '.repeat(JSON_AT_ONCE_BYTES_MAX)}`
    const [short, long] = [await send(body), await send(padded)]
    expect(long.statusCode).toBe(short.statusCode)
    const { detail = '' } = long.json<{ detail?: string }>()
    if (body.includes(']}')) expect(detail).toBe(short.json<{ detail?: string }>().detail ?? '')
    else expect(detail).toMatch(/ends too early at line 2, column \d+$/)
  })

  test('nothing of it is repeated', async () => {
    const server = await start()
    const body = `{"ops": [{"op": "put", "key": "SECRET", "value": SECRET}]}`
    const answer = await server.send('POST', '/v1/txn', { 'content-type': 'application/json' }, body)
    expectProblem(answer, 'invalid_argument')
    expect(answer.body).not.toContain('SECRET')
  })

  test.each(['{"__proto__": 1}', '{"constructor": {"prototype": 1}}'])(
    '%s is JSON, and refused as what it is',
    async (body) => {
      const server = await start()
      const answer = await server.send('POST', '/v1/txn', { 'content-type': 'application/json' }, body)
      expect(expectProblem(answer, 'invalid_argument', { field: 'body' })['detail']).toContain('__proto__')
    },
  )
})
