import { expect, test } from 'vitest'
import { decidePut } from '../../src/leases/decide-put.js'

const held = { holder: 'a', fence: 7 }

test.each([
  ['a free lease', { holder: 'a' }, undefined, 'grant'],
  ['a free lease, by an old fence', { holder: 'a', fence: 7 }, undefined, 'other_fence'],
  ['its own', { holder: 'a' }, held, 'renew'],
  ['its own, by its fence', { holder: 'a', fence: 7 }, held, 'renew'],
  ['its own, by an old fence', { holder: 'a', fence: 6 }, held, 'other_fence'],
  ['that of another', { holder: 'b' }, held, 'held'],
  ['that of another, by the fence of that', { holder: 'b', fence: 7 }, held, 'held'],
  ['that of another, by an old fence', { holder: 'b', fence: 6 }, held, 'other_fence'],
] as const)('%s', (_, request, present, verdict) => {
  expect(decidePut(request, present)).toBe(verdict)
})
