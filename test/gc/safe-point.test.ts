import { expect, test } from 'vitest'
import { type Holder, safePointOf } from '../../src/gc/safe-point.js'

const cases: { name: string; holders: Holder[]; want: unknown }[] = [
  { name: 'nobody reads anything old', holders: [], want: { safePoint: 100 } },
  { name: 'a holder at or above it', holders: [{ by: 'pin', ts: 100 }], want: { safePoint: 100 } },
  { name: 'a holder below', holders: [{ by: 'lock', ts: 99 }], want: { safePoint: 99, heldBackBy: 'lock' } },
  {
    name: 'the lowest of many',
    holders: [
      { by: 'pin', ts: 50 },
      { by: 'transaction', ts: 40 },
      { by: 'lock', ts: 60 },
    ],
    want: { safePoint: 40, heldBackBy: 'transaction' },
  },
]
test.each(cases)('$name', ({ holders, want }) => expect(safePointOf(100, holders)).toEqual(want))
