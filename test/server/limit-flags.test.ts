import { expect, test } from 'vitest'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { readConfig } from '../../src/server/config.js'

test('without a flag every limit has its default', () => {
  expect(readConfig([], {}).limits).toEqual(DEFAULT_LIMITS)
})

test('a limit is set by flag or by environment, within its bounds', () => {
  const env = { PERKV_TXNS_BYTES_MAX: '5000', PERKV_REQUESTS_MAX: '7' }
  const { limits } = readConfig(['--requests-max', '8', '--loop-delay-ms-max', '0'], env)
  expect(limits).toMatchObject({ txnsBytesMax: 5000, requestsMax: 8, loopDelayMsMax: 0 })
  expect(() => readConfig(['--requests-max', '0'], {})).toThrow('--requests-max must be an integer from 1')
  expect(() => readConfig([], { PERKV_KEY_BYTES_MAX: '9000' })).toThrow('PERKV_KEY_BYTES_MAX')
})
