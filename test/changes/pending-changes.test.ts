import { expect, test } from 'vitest'
import { PendingChanges } from '../../src/changes/pending-changes.js'
import { utf8 } from '../store/support.js'

function pendingAt(...timestamps: readonly number[]): PendingChanges {
  const pending = new PendingChanges()
  for (const [i, commitTs] of timestamps.entries())
    pending.add({ type: 'put', key: utf8(`k${i}`), commitTs, startTs: commitTs - 1 })
  return pending
}

test('changes of one commit_ts are taken together', () => {
  const pending = pendingAt(7, 5, 9, 7, 7)
  expect(pending.take(8, 2, 4)?.map(({ commitTs }) => commitTs)).toEqual([5, 7, 7, 7])
  expect(pending.take(8, 2, 4)).toEqual([])
  expect(pending.take(9, 2, 4)).toHaveLength(1)
  expect(pending.bytes).toBe(0)
})

test('a commit_ts of more changes than may be taken is given up at that number', () => {
  const pending = pendingAt(...Array.from({ length: 1000 }, () => 7))
  expect(pending.take(7, 2, 10)).toBeUndefined()
  expect(pending.size).toBe(990)
  pending.clear()
  expect([pending.size, pending.bytes]).toEqual([0, 0])
})

test('changes that came from the log are dropped some at a time, within a commit_ts too', () => {
  const pending = pendingAt(7, 7, 7, 8)
  expect([pending.drop(7, 2), pending.size]).toEqual([true, 2])
  expect([pending.drop(7, 2), pending.size]).toEqual([true, 1])
  expect([pending.drop(7, 2), pending.size]).toEqual([false, 1])
})
