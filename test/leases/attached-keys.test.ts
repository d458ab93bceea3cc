import { expect, test } from 'vitest'
import { AttachedKeys } from '../../src/leases/attached-keys.js'
import { ATTACHED_MAX } from '../../src/limits.js'
import type { Timestamp } from '../../src/timestamp.js'
import { codeOf, put } from '../store/support.js'
import { Attaching } from './attaching.js'

test('keys that are on their way count, whatever other grants are counted meanwhile', { tags: ['long'] }, async () => {
  const attaching = await Attaching.open()
  const { store, coordinator } = attaching.database
  const keys = new AttachedKeys(store, coordinator, { leasesMax: 1 })
  const fences = await Promise.all(['a', 'b', 'c'].map((name) => attaching.grant(name)))
  const [a = 0, b = 0, c = 0] = fences
  const coming = (fence: Timestamp, count: number) =>
    keys.attach(
      Array.from({ length: count }, (_, i) => ({ ...put(`${count}-${i}`), leaseFence: fence })),
      [{ lease: 'abc'.charAt(fences.indexOf(fence)), fence }],
    )
  const first = await coming(a, ATTACHED_MAX - 1)
  for (const fence of [b, c, b]) (await coming(fence, 1))?.done()
  expect(await codeOf(coming(a, 2))).toBe('invalid_argument')
  first?.done()
  await coming(c, 1)
  expect(await codeOf(coming(a, 2))).toBe('none') // It is counted again, and none has come.
})
