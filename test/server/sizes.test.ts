import { describe, expect, test } from 'vitest'
import { readConfig } from '../../src/server/config.js'
import { flagsHelp, sizeBytes, UsageError } from '../../src/server/flags.js'

describe('sizes', () => {
  test.each([
    ['0', 0],
    ['65536', 65536],
    ['1B', 1],
    ['64KiB', 65536],
    ['64kib', 65536],
    ['64 MiB', 2 ** 26],
    ['1GiB', 2 ** 30],
    ['1TiB', 2 ** 40],
    ['256MB', 256e6],
  ])('%s', (text, bytes) => {
    expect(sizeBytes({ text, from: '--size' }, 0, 2 ** 40)).toBe(bytes)
  })

  test.each(['', '-1', '1.5MiB', 'MiB', '1M', '1024GiBs', '2TiB', '9'.repeat(400), '1e3'])('"%s" is none', (text) => {
    expect(() => sizeBytes({ text, from: '--size' }, 0, 2 ** 40)).toThrow(
      /^--size must be a size such as 65536, 64MiB or 1GiB, from 0 to 1TiB, not "/,
    )
  })

  test('are shown in the largest unit that is whole', () => {
    const help = flagsHelp({
      a: { value: 'BYTES', help: '', default: '67108864' },
      b: { value: 'BYTES', help: '', default: '1536' },
    })
    expect(help).toMatch(/default 64MiB;.*\n.*default 1536;/)
  })
})

test('limits and caches take sizes and times with units, as flags and as variables', () => {
  const config = readConfig(['--cache-bytes-max', '1GiB', '--idle-ms-max', '30s'], {
    PERKV_VALUE_BYTES_MAX: '4MiB',
    PERKV_SLOW_MS: '2s',
  })
  expect(config.cacheBytesMax).toBe(2 ** 30)
  expect(config.limits.valueBytesMax).toBe(4 * 2 ** 20)
  expect([config.limits.idleMsMax, config.slowMs]).toEqual([30_000, 2000])
  expect(() => readConfig(['--requests-max', '1KiB'], {})).toThrow(UsageError)
})
