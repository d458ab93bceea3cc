import { describe, expect, test } from 'vitest'
import { didYouMean, nameInError, nearestName } from '../../src/errors/nearest-name.js'

const PUT = ['ttl_ms', 'expire_ts', 'lease', 'lock_wait_ms', 'timeout_ms']
const SCAN = ['prefix', 'start', 'end', 'limit', 'reverse', 'keys_only', 'ts', 'at', 'cursor']
const OPS = ['get', 'put', 'delete', 'insert', 'increment', 'min', 'max', 'touch', 'scan', 'delete_range']

describe('the nearest of the known names', () => {
  test.each([
    ['tll_ms', PUT, 'ttl_ms'],
    ['tlt_ms', PUT, 'ttl_ms'],
    ['ttl_m', PUT, 'ttl_ms'],
    ['ttl_mss', PUT, 'ttl_ms'],
    ['ttlMs', PUT, 'ttl_ms'],
    ['TTL-MS', PUT, 'ttl_ms'],
    ['ttl', PUT, 'ttl_ms'],
    ['timeout', PUT, 'timeout_ms'],
    ['expires_ts', PUT, 'expire_ts'],
    ['lock-wait', PUT, 'lock_wait_ms'],
    ['limt', SCAN, 'limit'],
    ['revers', SCAN, 'reverse'],
    ['keysonly', SCAN, 'keys_only'],
    ['prefixes', SCAN, 'prefix'],
    ['sart', SCAN, 'start'],
    ['Put', OPS, 'put'],
    ['del', OPS, 'delete'],
    ['incremnet', OPS, 'increment'],
    ['nope', PUT, undefined],
    ['other', SCAN, undefined],
    ['x', SCAN, undefined],
    ['', OPS, undefined],
    ['_', OPS, undefined],
    ['__proto__', PUT, undefined],
  ])('to %s', (name, known, nearest) => {
    expect(nearestName(name, known)).toBe(nearest)
    expect(didYouMean(name, known)).toBe(nearest === undefined ? '' : `: did you mean ${nearest}?`)
  })
})

test('a name longer than all others is not looked for', () => {
  expect(nearestName('ttl_ms'.repeat(5000), PUT)).toBeUndefined()
  expect(nearestName('_'.repeat(5000), PUT)).toBeUndefined()
})

test('a message repeats the beginning of a long name, and no half of a character', () => {
  expect(nameInError('n'.repeat(100))).toBe('n'.repeat(100))
  expect(nameInError('n'.repeat(30_000))).toBe(`${'n'.repeat(100)}…`)
  expect(nameInError(`${'n'.repeat(99)}😀`)).toBe(`${'n'.repeat(99)}\ufffd…`)
})
