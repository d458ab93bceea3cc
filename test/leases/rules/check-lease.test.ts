import { describe, expect, test } from 'vitest'
import { lostLeases } from '../../../src/leases/rules/check-lease.js'

describe('the leases of a transaction', () => {
  const held: Readonly<Record<string, number>> = { a: 5, b: 9 }
  test.each([
    ['none', [], []],
    [
      'held under their fences',
      [
        { lease: 'a', fence: 5 },
        { lease: 'b', fence: 9 },
      ],
      [],
    ],
    ['granted anew', [{ lease: 'b', fence: 8 }], [{ index: 0, lease: 'b', fence: 9 }]],
    ['a fence of the future', [{ lease: 'b', fence: 10 }], [{ index: 0, lease: 'b', fence: 9 }]],
    ['free', [{ lease: 'c', fence: 5 }], [{ index: 0, lease: 'c', fence: 0 }]],
    [
      'all that are lost, by their places',
      [
        { lease: 'c', fence: 1 },
        { lease: 'a', fence: 5 },
        { lease: 'a', fence: 4 },
      ],
      [
        { index: 0, lease: 'c', fence: 0 },
        { index: 2, lease: 'a', fence: 5 },
      ],
    ],
    ['places in a list of checks', [{ lease: 'c', fence: 1, index: 12 }], [{ index: 12, lease: 'c', fence: 0 }]],
  ])('%s', (_, guards, lost) => {
    expect(
      lostLeases(
        guards,
        guards.map(({ lease }) => held[lease] ?? 0),
      ),
    ).toEqual(lost)
  })
})
