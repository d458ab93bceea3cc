import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { indentedJson, jsonMistake, textOfTokens } from '../../src/console/json-text.js'

const text = (json: string): string => textOfTokens(indentedJson(json))

describe('JSON as it is written', () => {
  test('is indented as JSON.stringify does it', () => {
    fc.assert(
      fc.property(fc.json(), (json) => {
        expect(text(json)).toBe(JSON.stringify(JSON.parse(json), undefined, 2))
        expect(jsonMistake(json)).toBeUndefined()
        expect(jsonMistake(text(json))).toBeUndefined()
      }),
      { examples: [['{"a":[],"b":{},"c":[{}],"d":[[],[1]]}'], ['""'], ['[[[]]]']] },
    )
  })

  test('of any depth is indented up to a bound', () => {
    const depth = 20_000
    expect(text('['.repeat(depth) + ']'.repeat(depth)).length).toBeLessThan(depth * 2 * 130)
  })

  test('keeps numbers and escapes', () => {
    expect(text('[12345678901234567890,1.50,1e3,"\\u00e9"]')).toBe(
      '[\n  12345678901234567890,\n  1.50,\n  1e3,\n  "\\u00e9"\n]',
    )
    expect(indentedJson('{"a":"b"}').map(({ kind }) => kind)).toEqual(['sign', 'name', 'sign', 'text', 'sign'])
  })

  test('a text has a mistake exactly where JSON.parse refuses it', () => {
    const character = fc.constantFrom(...'{}[],:"\\ \n0123456789.-+eEtrufalsn\u0007')
    const pieces = fc.array(fc.oneof(character, fc.constantFrom('"a"', '"a":', 'true', '1', '{"a":1}', '[1,2]')))
    fc.assert(
      fc.property(
        pieces.map((all) => all.join('')),
        (json) => {
          expect(jsonMistake(json) === undefined).toBe(isJson(json))
        },
      ),
      { numRuns: 2000 },
    )
  })

  const MISTAKES = [
    ['', 1, 1, 'a value is expected'],
    ['{"a":1', 1, 7, 'a comma or } is expected'],
    ['{"a":', 1, 6, 'a value is expected'],
    ['{\n  "a": 1,\n}', 3, 1, 'a name in double quotes is expected'],
    ['{a: 1}', 1, 2, 'a name in double quotes or } is expected'],
    ['{"a" 1}', 1, 6, 'a colon is expected'],
    ['[1, 2}', 1, 6, 'a comma or ] is expected'],
    ['[1 ,]', 1, 5, 'a value is expected'],
    ['[}', 1, 2, 'a value or ] is expected'],
    ['["a\n"]', 1, 2, 'a value or ] is expected'],
    ['[01]', 1, 3, 'a comma or ] is expected'],
    ['{} x', 1, 4, 'nothing more is expected'],
  ] as const
  test.each(MISTAKES)('%j is wrong in line %i, column %i: %s', (json, line, column, expected) => {
    expect(jsonMistake(json)).toMatchObject({ line, column, expected })
  })
})

function isJson(json: string): boolean {
  try {
    JSON.parse(json)
    return true
  } catch {
    return false
  }
}
