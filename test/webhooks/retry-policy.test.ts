import { describe, expect, test } from 'vitest'
import { afterFailedAttempt, type FailedAttempt, type Failure } from '../../src/webhooks/retry-policy.js'

const NOW = 1_700_000_000_000
const OPTIONS = { maxAttempts: 64, backoffMs: 1000, backoffMaxMs: 600_000 }

function failed(
  before: Partial<Failure> | undefined,
  attempt: Partial<FailedAttempt>,
  random = 0.5,
  options = OPTIONS,
) {
  const failure = before && { attempts: 0, error: '', upTo: 0, nextMs: 0, isParked: false, ...before }
  return afterFailedAttempt(failure, { error: 'e', ...attempt }, { options, upTo: 7, nowMs: NOW, random })
}

describe('waits', () => {
  test.each([
    [0, 1000],
    [1, 2000],
    [5, 32_000],
    [9, 512_000],
    [10, 600_000],
    [60, 600_000],
  ])('after %i failed attempts before it', (attempts, waitMs) => {
    expect(failed({ attempts }, {})).toEqual({
      ...{ attempts: attempts + 1, error: 'e', upTo: 7, isParked: false },
      nextMs: NOW + waitMs,
    })
    expect(failed({ attempts }, {}, 0).nextMs).toBe(NOW + waitMs * 0.8)
    expect(failed({ attempts }, {}, 1).nextMs).toBe(NOW + waitMs * 1.2)
  })

  test('without a back-off, after any number of attempts', () => {
    const options = { ...OPTIONS, maxAttempts: 0, backoffMs: 0 }
    for (const attempts of [0, 1024, 1_000_000]) expect(failed({ attempts }, {}, 1, options).nextMs).toBe(NOW)
  })

  test.each([
    [429, '7', 7000],
    [503, '7', 7000],
    [503, new Date(NOW + 9000).toUTCString(), 9000],
    [503, '0', 1000],
    [503, '99999999', 3_600_000],
    [503, 'soon', 1000],
    [503, 'Thu, 01 Jan 1970 00:00:00 GMT', 1000],
    [503, '-1', 1000],
    [503, '1e9', 1000],
    [503, '', 1000],
    [503, undefined, 1000],
    [500, '7', 1000],
    [undefined, '7', 1000],
  ])('with the answer %s, Retry-After: %s', (status, retryAfter, waitMs) => {
    expect(failed(undefined, { status, retryAfter }).nextMs).toBe(NOW + waitMs)
  })
})

describe('parking', () => {
  test('at the last attempt, at 410, and never with 0', () => {
    expect(failed({ attempts: 62 }, {}).isParked).toBe(false)
    expect(failed({ attempts: 63 }, {})).toMatchObject({ isParked: true, attempts: 64, nextMs: NOW })
    expect(failed(undefined, { status: 410 })).toMatchObject({ isParked: true, attempts: 1 })
    expect(failed({ attempts: 1_000_000 }, {}, 0.5, { ...OPTIONS, maxAttempts: 0 }).isParked).toBe(false)
  })
})

test('the error has the beginning of the answer, and a bound', () => {
  expect(failed(undefined, { error: 'HTTP 500', text: 'no' }).error).toBe('HTTP 500: no')
  expect(failed(undefined, { error: 'HTTP 500', text: 'x'.repeat(1000) }).error).toHaveLength(256)
})
