import fc from 'fast-check'
import { expect, test } from 'vitest'
import { SortedMap } from '../../src/bytes/sorted-map.js'

const name = fc.string({ unit: fc.constantFrom('a', 'b', '/', '~'), minLength: 1, maxLength: 4 })
const some = fc.option(name, { nil: undefined })

test('property: a page is that of the sorted names, whatever was added and removed', async () => {
  const step = fc.record({ adds: fc.boolean(), name })
  const asked = fc.record({ prefix: some, after: some, limit: fc.integer({ min: 1, max: 6 }), hidden: name })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), asked, async (steps, { prefix, after, limit, hidden }) => {
      const map = new SortedMap<string>()
      const names = new Set<string>()
      for (const { adds, name } of steps) {
        if (adds) {
          map.set(name, name)
          names.add(name)
        } else expect(map.delete(name)).toBe(names.delete(name))
      }
      const shown = [...names].sort().filter((each) => each > (after ?? '') && each.startsWith(prefix ?? ''))
      const all = shown.filter((each) => each !== hidden)
      const page = await map.page({ prefix, after, limit }, (value) => value !== hidden)
      expect(page).toEqual({ items: all.slice(0, limit), next: all.length > limit ? all[limit - 1] : undefined })
    }),
  )
})

test('many names at a time: all of them, once each, while others come and go', async () => {
  const map = new SortedMap<number>()
  const nameOf = (i: number) => `n/${String(i).padStart(5, '0')}`
  const count = 3000
  for (let i = count - 1; i >= 0; i--) map.set(nameOf(i), i)
  const page = map.page({ prefix: 'n/', limit: count + 2 }, (i) => {
    if (i < count) map.set(`m/${i}`, i) // Below the place that is read.
    if (i === 7) map.delete(nameOf(8))
    if (i === 9) map.set(`${nameOf(9)}x`, count)
    return true
  })
  const expected = Array.from({ length: count }, (_, i) => i).filter((i) => i !== 8)
  expected.splice(expected.indexOf(9) + 1, 0, count)
  expect(await page).toEqual({ items: expected, next: undefined })
  map.clear()
  expect(await map.page({ limit: 1 })).toEqual({ items: [], next: undefined })
})
