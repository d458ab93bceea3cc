import { expect, test } from 'vitest'
import { canonicalOf, clusterValue } from '../../../docs/examples/index/canonical.mjs'

test('most anchors, then the least name', () => {
  const [a, b, c] = [
    { name: 'a', anchors: 1 },
    { name: 'b', anchors: 2 },
    { name: 'c', anchors: 2 },
  ] as const
  expect(canonicalOf([a, c, b])).toBe('b')
  expect(canonicalOf([a])).toBe('a')
  expect(canonicalOf([])).toBe(undefined)
})

test('a cluster without documents has no value', () => {
  expect(clusterValue([])).toBe(undefined)
  expect(clusterValue([{ name: 'a', anchors: 0 }])).toBe('{"canonical":"a","documents":1}')
})
