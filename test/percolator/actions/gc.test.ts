import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type GcAnswer, gc } from '../../../src/percolator/actions/gc.js'
import { get } from '../../../src/percolator/actions/get.js'
import type { WriteRecord } from '../../../src/percolator/write.js'
import {
  applyTo,
  changes,
  deleteAt,
  lockAt,
  lockRecordAt,
  overlapped,
  protectedRollbackAt,
  putAt,
  readable,
  rollbackAt,
  rowOf,
} from '../builders.js'

const long = (startTs: number, commitTs: number): WriteRecord => putAt(startTs, commitTs, { shortValue: undefined })

describe('gc at safe point 20', () => {
  const cases: { name: string; writes: WriteRecord[]; want: string; removed: number }[] = [
    { name: 'nothing', writes: [], want: 'no mutations', removed: 0 },
    { name: 'the only put', writes: [putAt(5, 6)], want: 'no mutations', removed: 0 },
    { name: 'a put at the safe point stays', writes: [putAt(19, 20), putAt(5, 6)], want: '-write 6', removed: 1 },
    {
      name: 'a put above it keeps the one below',
      writes: [putAt(19, 21), putAt(5, 6)],
      want: 'no mutations',
      removed: 0,
    },
    {
      name: 'all older ones go',
      writes: [putAt(15, 16), deleteAt(9, 10), putAt(5, 6)],
      want: '-write 10, -write 6',
      removed: 2,
    },
    {
      name: 'long values go with their records',
      writes: [long(15, 16), long(5, 6)],
      want: '-value 5, -write 6',
      removed: 1,
    },
    {
      name: 'a delete goes, after all below it',
      writes: [deleteAt(15, 16), long(5, 6)],
      want: '-value 5, -write 16, -write 6',
      removed: 2,
    },
    { name: 'a delete at the safe point', writes: [deleteAt(15, 20)], want: '-write 20', removed: 1 },
    { name: 'a delete above it stays', writes: [deleteAt(15, 21), putAt(5, 6)], want: 'no mutations', removed: 0 },
    {
      name: 'Lock and Rollback records go',
      writes: [lockRecordAt(17, 18), rollbackAt(16), putAt(5, 6)],
      want: '-write 16, -write 18',
      removed: 2,
    },
    { name: 'protected ones too', writes: [protectedRollbackAt(16)], want: '-write 16', removed: 1 },
    {
      name: 'but not above the safe point',
      writes: [lockRecordAt(17, 22), rollbackAt(21)],
      want: 'no mutations',
      removed: 0,
    },
    {
      name: 'below the put that stays',
      writes: [putAt(15, 16), rollbackAt(10), lockRecordAt(5, 6)],
      want: '-write 10, -write 6',
      removed: 2,
    },
    {
      name: 'a put with a flag is a put',
      writes: [overlapped(putAt(15, 16)), putAt(5, 6)],
      want: '-write 6',
      removed: 1,
    },
  ]
  for (const { name, writes, want, removed } of cases)
    test(name, () => {
      const collected = gc(rowOf({ writes }), 20)
      expect(changes(collected.mutations)).toBe(want)
      expect(collected.removed).toBe(removed)
    })

  test('a lock is not its business', () =>
    expect(gc(rowOf({ lock: lockAt(5), writes: [putAt(3, 4)] }), 20)).toMatchObject({ mutations: [], removed: 0 }))
})

const histories = fc
  .uniqueArray(
    fc.record({
      kind: fc.constantFrom('put', 'long', 'delete', 'lock', 'rollback'),
      ts: fc.integer({ min: 2, max: 40 }),
    }),
    {
      selector: ({ ts }) => ts,
      maxLength: 10,
    },
  )
  .map((records) =>
    records
      .sort((a, b) => b.ts - a.ts)
      .map(({ kind, ts }): WriteRecord => {
        if (kind === 'rollback') return rollbackAt(ts)
        if (kind === 'long') return long(ts - 1, ts)
        return kind === 'put' ? putAt(ts - 1, ts) : kind === 'delete' ? deleteAt(ts - 1, ts) : lockRecordAt(ts - 1, ts)
      }),
  )

test('no reader at or above the safe point sees a difference, and little is left below it', () => {
  fc.assert(
    fc.property(histories, fc.integer({ min: 0, max: 42 }), (writes, safePoint) => {
      const row = applyTo(rowOf({ writes }), gc(rowOf({ writes }), safePoint).mutations)
      const seen = (history: readonly WriteRecord[], ts: number): unknown => {
        const write = get(history, ts)
        return write === 'older' ? 'absent' : readable(write)
      }
      for (let ts = safePoint; ts <= 42; ts++) expect(seen(row.writes, ts)).toEqual(seen(writes, ts))
      // A transaction that started at the safe point may still prewrite: its Rollback record stays.
      const below = row.writes.filter(({ type, commitTs }) => commitTs < safePoint + (type === 'rollback' ? 0 : 1))
      expect(below.length).toBeLessThanOrEqual(1)
      expect(gc(row, safePoint)).toMatchObject({ mutations: [], removed: 0 })
    }),
    { numRuns: 300 },
  )
})

test('a history in parts loses what it loses as a whole, a delete after all that it deleted', () => {
  fc.assert(
    fc.property(
      histories,
      fc.integer({ min: 0, max: 42 }),
      fc.integer({ min: 1, max: 4 }),
      (writes, safePoint, size) => {
        const whole = gc(rowOf({ writes }), safePoint)
        const parts: GcAnswer[] = []
        for (let from = 0; from === 0 || from < writes.length; from += size) {
          const isLast = from + size >= writes.length
          const part = { base: parts.at(-1)?.base, isLast }
          parts.push(gc(rowOf({ writes: writes.slice(from, from + size) }), safePoint, part))
        }
        const mutations = parts.flatMap((part) => part.mutations)
        // A delete at the safe point itself may have been flagged by a rollback since its part was read.
        const kept = whole.base?.type === 'delete' && whole.base.commitTs === safePoint && parts.length > 1
        if (!kept || writes.indexOf(whole.base as WriteRecord) >= (parts.length - 1) * size)
          expect(changes(mutations)).toBe(changes(whole.mutations))
        const last = mutations.findIndex((one) => one.type === 'delete-write' && one.commitTs === whole.base?.commitTs)
        if (last >= 0) expect(last).toBe(mutations.length - 1)
      },
    ),
    { numRuns: 300 },
  )
})

test('a long value goes exactly when its record does', () => {
  fc.assert(
    fc.property(histories, fc.integer({ min: 0, max: 42 }), (writes, safePoint) => {
      const { mutations, removed } = gc(rowOf({ writes }), safePoint)
      const goneRecords = mutations.flatMap((mutation) => (mutation.type === 'delete-write' ? [mutation.commitTs] : []))
      const goneValues = mutations.flatMap((mutation) => (mutation.type === 'delete-value' ? [mutation.startTs] : []))
      const longGone = writes.filter(
        (write) => write.type === 'put' && !write.shortValue && goneRecords.includes(write.commitTs),
      )
      expect(goneValues.sort()).toEqual(longGone.map(({ startTs }) => startTs).sort())
      expect(removed).toBe(goneRecords.length)
    }),
    { numRuns: 300 },
  )
})
