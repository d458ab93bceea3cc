import { expect, test } from 'vitest'
import { Targets } from '../../src/webhooks/targets.js'

const ALLOWED = 'https://hooks.example.com/in/, http://127.0.0.1:9000, https://example.org/exactly'

function isAllowed(text: string, allowed = ALLOWED): boolean {
  const targets = Targets.parse(allowed)
  if (typeof targets === 'string') throw new Error(targets)
  try {
    targets.require(text)
    return true
  } catch {
    return false
  }
}

test.each([
  'https://hooks.example.com/in/a?token=1',
  'https://HOOKS.example.com:443/in/',
  'http://127.0.0.1:9000/anything',
  'http://127.1:9000/',
  'https://example.org/exactly',
  'https://example.org/exactly/below',
])('%s is allowed', (url) => {
  expect(isAllowed(url)).toBe(true)
})

test.each([
  'https://hooks.example.com/in',
  'https://hooks.example.com/in/../out',
  'https://hooks.example.com/in/%2e%2e/out',
  'https://hooks.example.com/in/..%2fout',
  'https://hooks.example.com/in/..%5cout',
  'https://hooks.example.com/in\\..\\..\\out',
  'https://hooks.example.com/in/..;/out',
  'https://hooks.example.com/in/%252e%252e%252fout',
  'http://hooks.example.com/in/a',
  'https://hooks.example.com.evil.test/in/',
  'https://hooks.example.com@evil.test/in/',
  'https://user@hooks.example.com/in/',
  'https://:pass@hooks.example.com/in/',
  'https://hooks.example.com/in/#part',
  'http://127.0.0.1:9001/',
  'http://127.0.0.1/',
  'http://localhost:9000/',
  'https://example.org/exactlyelse',
  'ftp://127.0.0.1:9000/',
  'file:///etc/passwd',
  'http://',
  '',
  `https://hooks.example.com/in/${'a'.repeat(2048)}`,
])('%s is not allowed', (url) => {
  expect(isAllowed(url)).toBe(false)
})

test.each([
  '',
  'hooks.example.com',
  'ftp://a/',
  'https://a/,',
  'https://user:secret@a/',
  'https://a/?b',
  'https://a/#b',
])('the list "%s" cannot be used', (text) => {
  expect(Targets.parse(text)).toEqual(expect.any(String))
})
