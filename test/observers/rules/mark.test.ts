import { describe, expect, test } from 'vitest'
import type { StoredNotification } from '../../../src/observers/rules/cell.js'
import { markCell, uncoveredNotification } from '../../../src/observers/rules/mark.js'

const observer = (maxDepth: number) => ({ id: 1, name: 'o', range: {}, maxDepth })
const markAt = (changeTs: number, more: Partial<StoredNotification> = {}): StoredNotification => ({
  changeTs,
  kind: 'put',
  depth: 0,
  ...more,
})

const cases: readonly {
  readonly name: string
  readonly mark: StoredNotification
  readonly present?: StoredNotification
  readonly want: StoredNotification
}[] = [
  { name: 'a clean cell', mark: markAt(10), want: markAt(10) },
  {
    name: 'a newer mark replaces the entry',
    mark: markAt(10, { kind: 'delete' }),
    present: markAt(9),
    want: markAt(10, { kind: 'delete' }),
  },
  {
    name: 'a mark at the same timestamp does too',
    mark: markAt(10, { kind: 'notified', depth: 2 }),
    present: markAt(10),
    want: markAt(10, { kind: 'notified', depth: 2 }),
  },
  {
    name: 'a mark below the entry changes nothing',
    mark: markAt(10),
    present: markAt(11, { kind: 'notified', depth: 3 }),
    want: markAt(11, { kind: 'notified', depth: 3 }),
  },
  {
    name: 'the depth of the newest mark stands, also a lower one',
    mark: markAt(10, { depth: 1 }),
    present: markAt(9, { depth: 4 }),
    want: markAt(10, { depth: 1 }),
  },
  { name: 'a mark as deep as may be', mark: markAt(10, { depth: 5 }), want: markAt(10, { depth: 5 }) },
  {
    name: 'a mark that is too deep, below the entry',
    mark: markAt(10, { depth: 6 }),
    present: markAt(11),
    want: markAt(11),
  },
]
describe('max_depth 5', () => {
  for (const { name, mark, present, want } of cases)
    test(name, () => expect(markCell(observer(5), mark, present)).toEqual({ notification: want }))

  for (const present of [undefined, markAt(9)])
    test(`a mark that is too deep parks the cell, ${present ? 'also over an entry' : 'without an entry'}`, () => {
      const marked = markCell(observer(5), markAt(10, { kind: 'delete', depth: 6 }), present)
      expect(marked).toEqual({
        parked: {
          attempts: 0,
          notBeforeMs: 0,
          error: 'the depth 6 of the notification is above max_depth 5',
          parkedTs: 10,
          changeTs: 10,
          kind: 'delete',
          depth: 6,
        },
      })
    })
})

test('max_depth 0 is no limit', () => {
  const mark = markAt(10, { depth: 1_000_000 })
  expect(markCell(observer(0), mark)).toEqual({ notification: mark })
})

test('the newest change of a cell that is not covered is that of its entry, or the one that it is parked with', () => {
  const notification = markAt(7, { kind: 'notified', depth: 1 })
  const parked = { changeTs: 9, kind: 'delete', depth: 4 } as const
  const failureAt = (parkedTs: number) => ({ attempts: 2, notBeforeMs: 3, error: 'e', parkedTs, ...parked })
  expect(uncoveredNotification({ notification: undefined, failure: undefined })).toBeUndefined()
  expect(uncoveredNotification({ notification: undefined, failure: failureAt(0) })).toBeUndefined()
  expect(uncoveredNotification({ notification: undefined, failure: failureAt(10) })).toEqual(parked)
  expect(uncoveredNotification({ notification, failure: failureAt(10) })).toEqual(notification)
})
