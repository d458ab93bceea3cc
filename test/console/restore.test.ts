import { expect, test } from 'vitest'
import { restoredRoom, restorePlan } from '../../src/console/restore.js'

const HOUR = 3_600_000 * 2048
const NOW = Date.UTC(2026, 10, 28, 12) * 2048
const version = (given: { expireTs?: number; leaseFence?: number } = {}) => ({
  ...{ value: 'old', commitTs: NOW - HOUR, expireTs: given.expireTs, leaseFence: given.leaseFence },
})
const present = (given: { expireTs?: number; leaseFence?: number } = {}) => ({ ...version(given), commitTs: 7 })
const LEASES = new Map([[5, 'leader']])

test('each key is checked and written, or deleted, in one transaction', () => {
  const restorations = [
    { key: 'a', target: version(), present: present() },
    { key: 'b', target: version(), present: undefined },
    { key: 'c', target: undefined, present: present() },
  ]
  expect(restorePlan(restorations, LEASES, NOW).request).toEqual({
    checks: [
      { key: 'a', commit_ts: 7 },
      { key: 'b', commit_ts: 0 },
      { key: 'c', commit_ts: 7 },
    ],
    ops: [
      { op: 'put', key: 'a', value: 'old' },
      { op: 'put', key: 'b', value: 'old' },
      { op: 'delete', key: 'c' },
    ],
  })
})

test.each([
  ['no expiry', version(), present(), [], []],
  ['an expiry ahead', version({ expireTs: NOW + HOUR }), present(), [['expire_ts', NOW + HOUR]], ['as then']],
  ['an expiry that has passed', version({ expireTs: NOW }), present(), [], ['has passed: it gets none']],
  ['none then, one now', version(), present({ expireTs: NOW + HOUR }), [], ['the present one is dropped']],
  [
    'a lease that is held',
    version({ leaseFence: 5 }),
    present(),
    [['lease', 'leader']],
    ['with the lease leader, as then'],
  ],
  [
    'a lease that has ended',
    version({ leaseFence: 4 }),
    present(),
    [],
    ['has ended, or is hidden from you: it gets none'],
  ],
  ['none then, a lease now', version(), present({ leaseFence: 5 }), [], ['the present one no longer ends it']],
])('%s', (_, target, now, fields, told) => {
  const { keys, request } = restorePlan([{ key: 'k', target, present: now }], LEASES, NOW)
  expect(request.ops).toEqual([{ op: 'put', key: 'k', value: 'old', ...Object.fromEntries(fields) }])
  expect(keys.flatMap(({ notes }) => notes)).toEqual(told.map((note) => expect.stringContaining(note)))
  const isLeased = fields.some(([name]) => name === 'lease')
  expect(request.checks.slice(1)).toEqual(isLeased ? [{ lease: 'leader', fence: 5 }] : [])
})

test('a transaction checks a thousand leases, and attaches any number of keys to them', () => {
  const leases = new Map(Array.from({ length: 1001 }, (_, fence) => [fence, `lease ${fence}`]))
  const fences = [...leases.keys(), 0]
  const restorations = fences.map((leaseFence, i) => ({
    ...{ key: `k${i}`, target: version({ leaseFence }), present: undefined },
  }))
  const ops = restorePlan(restorations, leases, NOW).request.ops as { readonly lease?: string }[]
  expect(ops.map(({ lease }) => lease).slice(999)).toEqual(['lease 999', undefined, 'lease 0'])
})

test('a restoration has room for so many keys, and for so many bytes', () => {
  const keys = restoredRoom()
  for (let i = 0; i < 10_000; i++) keys.take('k', undefined)
  expect(() => keys.take('k', undefined)).toThrow('up to 10000 keys')
  const bytes = restoredRoom()
  for (let i = 0; i < 15; i++) bytes.take('k', 'v'.repeat(1024 * 1024))
  expect(() => bytes.take('k', 'v'.repeat(1024 * 1024))).toThrow('16 MiB')
})
