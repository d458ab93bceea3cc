import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { runToEnd } from '../../../src/event-loop/time-slicer.js'
import { JSON_AT_ONCE_BYTES_MAX } from '../../../src/http/admission/body-parsers.js'
import { readJson } from '../../../src/http/wire/json-reader.js'
import { expectProblem, testServers } from '../support.js'

const start = testServers()

/** @returns where `readJson` stops, as it says it. */
function placeIn(
  text: string,
): { readonly line: number; readonly column: number; readonly hasEnded: boolean } | undefined {
  try {
    runToEnd(readJson(Buffer.from(text), { valuesMax: Infinity, textBytesMax: Infinity }))
  } catch (error) {
    const { message } = error as Error
    const [, line, column] = /at line (\d+), column (\d+)$/.exec(message) ?? []
    if (line === undefined) return undefined // Deeper than any body may be, or the name of a prototype.
    return { line: Number(line), column: Number(column), hasEnded: message.startsWith('it ends too early') }
  }
  return undefined
}

describe('where a text stops being JSON', () => {
  test.each([
    ['{"a":1,}', 8],
    ['{"a" 1}', 6],
    ['{"a":}', 6],
    ["{'a':1}", 2],
    ['{a:1}', 2],
    ['[1,,2]', 4],
    ['[1 2]', 4],
    ['[1}', 3],
    ['{"a":1]', 7],
    ['{}{}', 3],
    [']', 1],
    [',', 1],
    ['', 1],
    ['  ', 3],
    ['{"a":', 6],
    ['"abc', 5],
    ['"a\nb"', 3],
    ['"\\x"', 3],
    ['"\\u12g4"', 6],
    ['"\\u12', 6],
    ['"\\', 3],
    ['tru', 1],
    ['nul]', 1],
    ['01', 2],
    ['1.', 2],
    ['-', 1],
    ['.5', 1],
    ['NaN', 1],
    ['1e', 2],
    ['\u00a01', 1],
    ['[{"a":[{"b":[]}]}]', undefined],
    ['\ufeff{"a":null}', undefined],
    [' -0.5e+3 ', undefined],
    ['"\\u00e9\\n"', undefined],
  ])('%j: column %s', (text, column) => {
    expect(placeIn(text)?.column).toBe(column)
  })

  test.each([
    ['{\n  "a": x', 2, 8],
    ['{\r\n\n', 3, 1],
    ['["a\nb"]', 1, 4],
    ['{\n"a": "b,\n"c"', 2, 9],
    ['{\n"a": "b\n}\n', 2, 8],
    ['{"\u{1f600}":\n"\u00e9", x', 2, 6],
    ['\ufeff [\r\n 01]', 2, 3],
    ['\ufeff\ufeff1', 1, 2],
  ])('%j: line %i, column %i', (text, line, column) => {
    expect(placeIn(text)).toMatchObject({ line, column })
  })

  test('what comes before it is the beginning of some JSON', { tags: ['long'] }, () => {
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
        const place = placeIn(text)
        if (place === undefined) return
        const lines = text.split('\n')
        expect(place.line).toBeLessThanOrEqual(lines.length)
        const before = [...lines.slice(0, place.line - 1), lines[place.line - 1]?.slice(0, place.column - 1)].join('\n')
        expect([true, undefined], before).toContain(placeIn(before)?.hasEnded)
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
    for (const text of hostile) expect(placeIn(`${text}x`)?.line ?? 1).toBe(1) // Brackets are too deep, and have no place.
    expect(performance.now() - begin).toBeLessThan(10_000)
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

  test.each([
    ['{"__proto__": 1}', '__proto__'],
    ['{"constructor": {"prototype": 1}}', 'constructor.prototype'],
  ])('%s is JSON, and refused because of %s', async (body, name) => {
    const server = await start()
    const answer = await server.send('POST', '/v1/txn', { 'content-type': 'application/json' }, body)
    expect(expectProblem(answer, 'invalid_argument', { field: 'body' })['detail']).toContain(name)
  })
})
