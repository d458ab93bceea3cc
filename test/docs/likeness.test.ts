import { expect, test } from 'vitest'
import { Likeness } from './likeness.js'

const SHOWN = '{"commit_ts":3676886146117633}'
const OTHER = '{"commit_ts":3676886146191361}'

test('a timestamp of this run stands for the one of the document, here and in commands', () => {
  const likeness = new Likeness()
  expect(likeness.express([SHOWN], ['{"commit_ts":1000000000000001}'])).toEqual([SHOWN])
  expect(likeness.inThisRun('curl localhost/?ts=3676886146117633')).toBe('curl localhost/?ts=1000000000000001')
  expect(likeness.express(['unlike'], ['at 1000000000000001'])).toEqual(['at 3676886146117633'])
})

test('equal timestamps stay equal, different ones different', () => {
  const likeness = new Likeness()
  likeness.express([SHOWN], ['{"commit_ts":1000000000000001}'])
  expect(likeness.express([SHOWN], ['{"commit_ts":1000000000000002}'])).toEqual(['{"commit_ts":1000000000000002}'])
  expect(likeness.express([OTHER], ['{"commit_ts":1000000000000001}'])).toEqual([SHOWN])
})

const cases = [
  {
    name: 'a date',
    shown: 'Date: Sat, 21 Nov 2026 05:51:57 GMT',
    actual: 'Date: Sun, 22 Nov 2026 05:51:57 GMT',
    isAlike: true,
  },
  { name: 'an instant', shown: '"2026-11-22T20:00:00.000Z"', actual: '"2026-11-23T01:02:03Z"', isAlike: true },
  { name: 'a duration in a column', shown: 'moved   3.48 s', actual: 'moved  13.1 ms', isAlike: true },
  { name: 'a rate', shown: '45,152/s', actual: '9,000/s', isAlike: true },
  { name: 'an age', shown: '{"lag_ms":0}', actual: '{"lag_ms":17}', isAlike: true },
  {
    name: 'anything',
    shown: '{"code":"write_conflict",…}',
    actual: '{"code":"write_conflict","key":"a"}',
    isAlike: true,
  },
  { name: 'another count', shown: '{"count":5}', actual: '{"count":6}', isAlike: false },
  { name: 'another name', shown: '{"code":"write_conflict"}', actual: '{"code":"key_locked"}', isAlike: false },
  { name: 'a small timestamp', shown: '{"commit_ts":20}', actual: '{"commit_ts":21}', isAlike: false },
  { name: 'more of it', shown: '{"ttl":60000}', actual: '{"ttl":60000,"type":"put"}', isAlike: false },
]
test.each(cases)('$name: alike $isAlike', ({ shown, actual, isAlike }) => {
  expect(new Likeness().express([shown], [actual])).toEqual([isAlike ? shown : actual])
})

test('a document may name more that is different in each run', () => {
  const likeness = new Likeness()
  expect(likeness.express(['12 of 5'], ['13 of 5'], [/^\d+/])).toEqual(['12 of 5'])
  expect(likeness.express(['12 of 5'], ['12 of 6'], [/^\d+/])).toEqual(['12 of 6'])
})

test('lines that are not shown are told', () => {
  expect(new Likeness().express(['a'], ['a', 'b'])).toEqual(['a', 'b'])
})
