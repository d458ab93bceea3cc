import { expect, test } from 'vitest'
import { judgePut } from '../../src/leases/judge-put.js'

const held = { holder: 'a', fence: 7, ttlMs: 1000 }

test.each([
  ['a free lease', { holder: 'a' }, undefined, undefined, 'grant'],
  ['a free lease, by an old fence', { holder: 'a', fence: 7 }, undefined, undefined, 'other_fence'],
  ['its own', { holder: 'a' }, held, 1000, 'renew'],
  ['its own, by its fence', { holder: 'a', fence: 7 }, held, 1000, 'renew'],
  ['its own, by an old fence', { holder: 'a', fence: 6 }, held, 1000, 'other_fence'],
  ['its own, with another TTL', { holder: 'a', ttlMs: 999 }, held, 1000, 'store'],
  ['its own, with its TTL, which is not on disk', { holder: 'a' }, held, 999, 'store'],
  ['its own, with a record that is not known', { holder: 'a' }, held, undefined, 'store'],
  ['that of another', { holder: 'b' }, held, 1000, 'held'],
  ['that of another, by the fence of that', { holder: 'b', fence: 7 }, held, 1000, 'held'],
  ['that of another, by an old fence', { holder: 'b', fence: 6 }, held, 1000, 'other_fence'],
] as const)('%s', (_, request, present, storedTtlMs, verdict) => {
  expect(judgePut({ ttlMs: 1000, ...request }, present, storedTtlMs)).toBe(verdict)
})
