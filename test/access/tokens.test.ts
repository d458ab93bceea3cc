import { describe, expect, test } from 'vitest'
import type { Grant } from '../../src/access/grant.js'
import { parseTokens } from '../../src/access/tokens.js'

const TOKEN = 'abcdefghijklmnop'
const OTHER = 'ponmlkjihgfedcba'

const grantOf = (text: string, token = TOKEN): Grant => {
  const grant = parseTokens(text).grantOf(token)
  if (grant === undefined) throw new Error('this token is not let in')
  return grant
}
const may = (check: () => void): boolean => {
  try {
    check()
    return true
  } catch {
    return false
  }
}
const key = (text: string) => Buffer.from(text, 'latin1')

describe('a token file', () => {
  test('comments, empty lines, tabs, CRLF; each token has what its line says', () => {
    const text = `# ours\r\n\r\nrw\t${TOKEN}\r\n  ro   ${OTHER} name=ci prefix=a/ \r\n`
    expect(may(() => grantOf(text).requireWrite())).toBe(true)
    expect(may(() => grantOf(text, OTHER).requireWrite())).toBe(false)
    expect(grantOf(text).isScoped).toBe(false)
    expect(grantOf(text, OTHER).isScoped).toBe(true)
  })

  test('nobody else is let in', () => {
    const tokens = parseTokens(`rw ${TOKEN}`)
    for (const token of ['', TOKEN.slice(1), `${TOKEN}x`, TOKEN.toUpperCase(), OTHER, '__proto__', 'constructor'])
      expect(tokens.grantOf(token)).toBeUndefined()
  })

  const refused: readonly (readonly [text: string, message: RegExp])[] = [
    ['', /holds no token/],
    ['# nothing\n', /holds no token/],
    ['rw', /line 1: a token has 16 to 512/],
    ['rw abcdefghijklmno', /line 1: a token has 16 to 512/],
    [`\nrx ${TOKEN}`, /line 2: it must begin with rw or ro/],
    [TOKEN, /line 1: it must begin with rw or ro/],
    [`rw ${TOKEN}:`, /letters, digits/],
    [`rw ${TOKEN}é`, /letters, digits/],
    [`rw ${TOKEN}\nro ${TOKEN}`, /line 2: this token stands above already/],
    [`rw ${TOKEN} prefix=`, /prefix is empty/],
    [`rw ${TOKEN} prefix=a%2`, /bad % escape/],
    [`rw ${TOKEN} name=a name=b`, /one name/],
    [`rw ${TOKEN} expires=2027-02-30`, /expires is a day such as/],
    [`rw ${TOKEN} expires=2027-01-31T12:00`, /expires is a day such as/],
    [`rw ${TOKEN} expires=`, /expires is a day such as/],
    [`rw ${TOKEN} expires=2027-01-31 expires=2027-01-31`, /one expires/],
    [`rw ${TOKEN} prefx=a`, /behind the token/],
    [`rw ${TOKEN} # a comment`, /behind the token/],
  ]
  test.each(refused)('%j is refused, and the token not told', (text, message) => {
    expect(() => parseTokens(text)).toThrow(message)
    expect(() => parseTokens(text)).not.toThrow(new RegExp(TOKEN))
  })
})

test.each([
  ['2027-01-31', '2027-02-01T00:00:00Z'],
  ['2027-01-31T12:00:00.5+01:00', '2027-01-31T11:00:00.500Z'],
])('a token with expires=%s is accepted until %s', (expires, end) => {
  const tokens = parseTokens(`\nrw ${TOKEN} expires=${expires} name=ci\nro ${OTHER}`)
  const endMs = Date.parse(end)
  expect(tokens.grantOf(TOKEN, endMs - 1)).toMatchObject({ mayWrite: true, expiresMs: endMs })
  expect(tokens.grantOf(TOKEN, endMs)).toBeUndefined()
  expect(tokens.grantOf(OTHER, 4e12)).toMatchObject({ expiresMs: undefined })
  expect(tokens.expiring(endMs - 1, endMs)).toEqual(['line 2 (ci)'])
  expect([tokens.expiring(0, endMs - 1), tokens.expiring(endMs, 4e12)]).toEqual([[], []])
})

test('a token of prefixes reaches their keys, and ranges that lie within one of them', () => {
  const grant = grantOf(`rw ${TOKEN} prefix=app/ prefix=%ff prefix=b%20`)
  const mayAccess = (text: string) => may(() => grant.requireKey(key(text), 'key'))
  for (const text of ['app/', 'app/x', '\xff', '\xff\xff', 'b \0']) expect(mayAccess(text), text).toBe(true)
  for (const text of ['app', 'app0', 'ap', 'b', 'bx', '\xfe', 'x']) expect(mayAccess(text), text).toBe(false)

  const spans = (start: string | undefined, end: string | undefined) =>
    may(() => grant.requireRange({ start: start && key(start), end: end && key(end) } as never, 'start'))
  expect(spans('app/', 'app0')).toBe(true)
  expect(spans('app/x', 'app/y')).toBe(true)
  expect(spans('\xff', undefined)).toBe(true)
  expect(spans('app/', undefined)).toBe(false)
  expect(spans(undefined, 'app0')).toBe(false)
  expect(spans('app/', 'app0\0')).toBe(false)
  expect(spans('app', 'app0')).toBe(false)
  expect(spans('app/', 'b!')).toBe(false) // From one prefix into another.
  expect(spans(undefined, undefined)).toBe(false)
})

test('who it is goes by name and rights', () => {
  const id = (line: string, token = TOKEN) => grantOf(line, token).identity
  const ci = id(`rw ${TOKEN} name=ci prefix=a prefix=b`)
  expect(id(`rw ${OTHER} prefix=b name=ci prefix=a`, OTHER)).toBe(ci)
  expect(id(`ro ${TOKEN} name=ci prefix=a prefix=b`)).not.toBe(ci)
  expect(id(`rw ${TOKEN} name=ci prefix=a`)).not.toBe(ci)
  expect(id(`rw ${TOKEN}`)).not.toBe(id(`rw ${OTHER}`, OTHER))
  expect(id(`rw ${TOKEN} name=${OTHER}`)).not.toBe(id(`rw ${OTHER}`, OTHER))
})
