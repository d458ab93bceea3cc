import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { pessimisticRollback } from '../../../src/percolator/actions/pessimistic-rollback.js'
import {
  applyTo,
  changes,
  KEY,
  lockAt,
  mustSucceed,
  pessimisticAt,
  putAt,
  type RowParts,
  rollbackAt,
  rowOf,
  summary,
} from '../builders.js'

describe('pessimistic rollback of 10, for_update_ts 20', () => {
  const cases: { name: string; row: RowParts; want: string }[] = [
    { name: 'no lock', row: {}, want: 'no mutations' },
    { name: 'own, at a lower for_update_ts', row: { lock: pessimisticAt(10, { forUpdateTs: 15 }) }, want: '-lock' },
    { name: 'own, at just that', row: { lock: pessimisticAt(10, { forUpdateTs: 20 }) }, want: '-lock' },
    { name: 'own, raised since', row: { lock: pessimisticAt(10, { forUpdateTs: 21 }) }, want: 'no mutations' },
    { name: 'own primary: no record either', row: { lock: pessimisticAt(10, { primary: KEY }) }, want: '-lock' },
    {
      name: 'records stay, of whomever',
      row: { lock: pessimisticAt(10), writes: [putAt(12, 13), rollbackAt(10), rollbackAt(5)] },
      want: '-lock',
    },
    { name: 'own prewrite lock', row: { lock: lockAt(10, { forUpdateTs: 15 }) }, want: 'no mutations' },
    { name: 'own prewrite lock of type lock', row: { lock: lockAt(10, { type: 'lock' }) }, want: 'no mutations' },
    { name: "an older transaction's lock", row: { lock: pessimisticAt(7) }, want: 'no mutations' },
    { name: "a younger transaction's lock", row: { lock: pessimisticAt(12) }, want: 'no mutations' },
    { name: 'committed', row: { writes: [putAt(10, 30)] }, want: 'no mutations' },
    { name: 'rolled back', row: { writes: [rollbackAt(10)] }, want: 'no mutations' },
  ]
  for (const { name, row, want } of cases)
    test(name, () => expect(summary(pessimisticRollback(rowOf(row), 10, 20))).toBe(want))
})

const locks = fc
  .record({
    type: fc.constantFrom('put', 'delete', 'lock', 'pessimistic', 'pessimistic'),
    startTs: fc.constantFrom(9, 10, 11),
    forUpdateTs: fc.integer({ min: 8, max: 24 }),
  } as const)
  .map(({ startTs, ...more }) => lockAt(startTs, more))

test('never takes more than its own pessimistic lock, and a repeat finds nothing to do', () => {
  fc.assert(
    fc.property(fc.option(locks, { nil: undefined }), fc.integer({ min: 8, max: 24 }), (lock, forUpdateTs) => {
      const row = rowOf({ ...(lock === undefined ? {} : { lock }), writes: [rollbackAt(5)] })
      const { mutations } = mustSucceed(pessimisticRollback(row, 10, forUpdateTs))
      const isMeant = lock?.type === 'pessimistic' && lock.startTs === 10 && lock.forUpdateTs <= forUpdateTs
      expect(changes(mutations)).toBe(isMeant ? '-lock' : 'no mutations')
      expect(summary(pessimisticRollback(applyTo(row, mutations), 10, forUpdateTs))).toBe('no mutations')
    }),
  )
})
