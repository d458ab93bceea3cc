import { expect, test } from 'vitest'
import { instantOf } from '../../../src/commands/client/arguments.js'

test.each([
  ['2026-11-30T09:00:00Z', '2026-11-30T09:00:00.000Z'],
  ['2026-11-30T09:00Z', '2026-11-30T09:00:00.000Z'],
  ['2026-11-30 09:00+01:00', '2026-11-30T08:00:00.000Z'],
  ['2024-02-29T23:59:59.5-00:30', '2024-03-01T00:29:59.500Z'],
])('%s is a time', (text, iso) => {
  expect(instantOf({ text, from: '--at' }).toISOString()).toBe(iso)
})

test.each(['2026-11-31T09:00:00Z', '2026-02-29T09:00Z', '2026-11-30T25:00Z', '2026-11-30', '1969-12-31T23:59:59Z'])(
  '%s is none',
  (text) => {
    expect(() => instantOf({ text, from: '--at' })).toThrow(/--at must be a time/)
  },
)
