import fc from 'fast-check'
import { expect, test } from 'vitest'
import { PersistentMap } from '../../src/bytes/persistent-map.js'

/** Enough for three levels of nodes, which splits and emptied nodes change. */
const KEYS = 6000
const nameOf = (n: number): string => String(n).padStart(4, '0')

const runs = fc.record({
  call: fc.constantFrom('set', 'delete', 'delete', 'snapshot'),
  from: fc.nat(KEYS),
  count: fc.constantFrom(1, 50, 3000),
  step: fc.constantFrom(1, -1, 7, 1237),
})

test('a map and its snapshots have what was set, in order', () => {
  fc.assert(
    fc.property(fc.array(runs, { minLength: 5, maxLength: 30 }), fc.nat(KEYS), fc.nat(KEYS), (steps, a, b) => {
      const map = new PersistentMap<number>()
      const model = new Map<string, number>()
      const seen: [PersistentMap<number>, Map<string, number>][] = [[map, model]]
      for (const [i, { call, from, count, step }] of steps.entries()) {
        if (call === 'snapshot') seen.push([map.snapshot(), new Map(model)])
        for (let n = 0; n < count; n++) {
          const name = nameOf((((from + n * step) % KEYS) + KEYS) % KEYS)
          if (call === 'set') {
            map.set(name, i)
            model.set(name, i)
          } else if (call === 'delete') {
            map.delete(name)
            model.delete(name)
          }
        }
      }
      const [low, high] = [nameOf(a), nameOf(b)]
      for (const [one, other] of seen) {
        const all = [...other].sort(([x], [y]) => (x < y ? -1 : 1))
        const some = all.filter(([name]) => name >= low && name < high)
        expect(one.range('', '~', Number.POSITIVE_INFINITY)).toEqual(all)
        expect(one.range(low, high, 100)).toEqual(some.slice(0, 100))
        expect(one.range(low, high, 100, true)).toEqual(some.toReversed().slice(0, 100))
        expect(one.get(low)).toBe(other.get(low))
      }
    }),
    { numRuns: 10 },
  )
})
