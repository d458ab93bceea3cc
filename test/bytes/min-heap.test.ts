import fc from 'fast-check'
import { expect, test } from 'vitest'
import { MinHeap, type Ranked } from '../../src/bytes/min-heap.js'

test('the items come by their rank, and the heap stays as it was', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(20)), fc.nat(50), (ranks, gone) => {
      const heap = new MinHeap<Ranked>()
      const items = ranks.map((): Ranked => ({ rank: 0, place: -1 }))
      items.forEach((item, i) => {
        heap.set(item, ranks[i] as number)
      })
      for (const item of items.splice(gone)) heap.delete(item)
      const sorted = ranks.slice(0, gone).sort((a, b) => a - b)
      for (let i = 0; i < 2; i++) expect([...heap.ascending()].map(({ rank }) => rank)).toEqual(sorted)
      expect(new Set(heap.ascending()).size).toBe(sorted.length)
    }),
  )
})
