import fc from 'fast-check'
import { expect, test } from 'vitest'
import { OrderedKeys } from '../../src/bytes/ordered-keys.js'

/** What `OrderedKeys` means, in the plainest form. */
class Model {
  keys: string[] = []
  add(key: string): void {
    if (!this.keys.includes(key)) this.keys = [...this.keys, key].sort(compare)
  }
  delete(key: string): void {
    this.keys = this.keys.filter((each) => each !== key)
  }
  range(start: string | undefined, end: string | undefined, reverse: boolean): string[] {
    const inside = this.keys.filter((key) => (start === undefined || key >= start) && (end === undefined || key < end))
    return reverse ? inside.reverse() : inside
  }
}
const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

function expectSame(keys: OrderedKeys, model: Model, start: string | undefined, end: string | undefined): void {
  for (const reverse of [false, true])
    expect([...keys.range(start, end, reverse)]).toEqual(model.range(start, end, reverse))
}

const key = fc.string({ unit: fc.constantFrom('\x00', 'a', 'b', '\xff'), maxLength: 4 })
const bound = fc.option(key, { nil: undefined })

test('property: like a sorted array', () => {
  const step = fc.oneof(
    { weight: 5, arbitrary: fc.record({ type: fc.constant('add' as const), key }) },
    { weight: 3, arbitrary: fc.record({ type: fc.constant('delete' as const), key }) },
    { weight: 1, arbitrary: fc.record({ type: fc.constant('clear' as const), key }) },
  )
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 60 }),
      fc.array(fc.tuple(bound, bound), { maxLength: 5 }),
      (steps, bounds) => {
        const keys = new OrderedKeys()
        const model = new Model()
        for (const action of steps) {
          if (action.type === 'clear') {
            keys.clear()
            model.keys = []
          } else {
            keys[action.type](action.key)
            model[action.type](action.key)
          }
        }
        expectSame(keys, model, undefined, undefined)
        for (const [start, end] of bounds) expectSame(keys, model, start, end)
      },
    ),
  )
})

test('property: over many chunks, with whole chunks removed', () => {
  const number = fc.nat(1999)
  const name = (n: number): string => String(n).padStart(4, '0')
  fc.assert(
    fc.property(
      number,
      number,
      number,
      number,
      fc.nat(2000),
      fc.boolean(),
      (from, to, start, end, multiplier, skips) => {
        const keys = new OrderedKeys()
        const model = new Model()
        const factor = multiplier * 2 + 1 // Odd, and no multiple of 5 below: a permutation of 0..1999.
        for (let i = 0; i < 2000; i++) keys.add(name((i * (factor % 5 === 0 ? factor + 2 : factor)) % 2000))
        model.keys = Array.from({ length: 2000 }, (_, i) => name(i))
        for (let i = Math.min(from, to); i < Math.max(from, to); i++) {
          if (skips && i % 3 === 0) continue
          keys.delete(name(i))
        }
        model.keys = model.keys.filter(
          (_, i) => i < Math.min(from, to) || i >= Math.max(from, to) || (skips && i % 3 === 0),
        )
        expectSame(keys, model, undefined, undefined)
        expectSame(keys, model, name(start), name(end))
        expectSame(keys, model, `${name(start)}x`, undefined)
        expectSame(keys, model, undefined, `${name(end)}x`)
      },
    ),
    { numRuns: 40 },
  )
})

test('adding twice keeps one; deleting what is not there changes nothing', () => {
  const keys = new OrderedKeys()
  keys.delete('a')
  keys.add('b')
  keys.add('b')
  keys.delete('a')
  keys.delete('c')
  expect([...keys.range(undefined, undefined, false)]).toEqual(['b'])
})

test('an iteration can stop early', () => {
  const keys = new OrderedKeys()
  for (let i = 0; i < 1000; i++) keys.add(String(i).padStart(3, '0'))
  for (const first of keys.range('500', undefined, false)) {
    expect(first).toBe('500')
    break
  }
  for (const first of keys.range(undefined, '500', true)) {
    expect(first).toBe('499')
    break
  }
})
