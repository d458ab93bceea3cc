import { expect, test } from 'vitest'
import { ASK_COUNT_MAX } from '../../src/oracle/timestamp-ask.js'
import { askOf, split, WaitingRequests } from '../../src/oracle/waiting-requests.js'

/** Requests whose time ends when the test says so. */
function requests() {
  const late: (() => void)[] = []
  const waiting = new WaitingRequests((_, call) => {
    late.push(call)
    return () => {}
  })
  const add = (count: number, floor = 0, isForwarded = false) =>
    waiting.add({ count, floor }, isForwarded, 1000, () => new Error('late'))
  return { waiting, add, late }
}

test('one ask is for all, and each gets its part of the answer', async () => {
  const { waiting, add } = requests()
  const answers = [add(3), add(0, 50), add(2, 40)]
  const batch = waiting.take()
  expect(askOf(batch)).toEqual({ count: 5, floor: 50 })
  expect(waiting.count).toBe(5)
  split(batch, { last: 105, nowMs: 1 })
  expect((await Promise.all(answers)).map((answer) => answer !== 'not_leader' && answer.last)).toEqual([103, 105, 105])
  expect(waiting.count).toBe(0)
  expect(waiting.isEmpty).toBe(true)
})

test('a batch is no larger than one ask may be, in the order in which the requests came', () => {
  const { waiting, add } = requests()
  for (const count of [ASK_COUNT_MAX - 1, 1, 1, ASK_COUNT_MAX, 5]) void add(count)
  const batches = [waiting.take(), waiting.take(), waiting.take(), waiting.take(), waiting.take()]
  expect(batches.map((batch) => batch.map(({ count }) => count))).toEqual([
    [ASK_COUNT_MAX - 1, 1],
    [1],
    [ASK_COUNT_MAX],
    [5],
    [],
  ])
})

test('what was put back comes first, as far as it has not ended', async () => {
  const { waiting, add, late } = requests()
  const first = add(1)
  void add(2)
  const batch = waiting.take()
  void add(3)
  late[0]?.()
  await expect(first).rejects.toThrow('late')
  waiting.putBack(batch)
  expect(waiting.count).toBe(5)
  expect(waiting.take().map(({ count }) => count)).toEqual([2, 3])
})

test('a part of the answer whose request has ended is left out', async () => {
  const { waiting, add, late } = requests()
  const [first, second] = [add(4), add(1)]
  const batch = waiting.take()
  late[0]?.()
  await expect(first).rejects.toThrow('late')
  split(batch, { last: 5, nowMs: 1 })
  expect(await second).toEqual({ last: 5, nowMs: 1 })
})

test('requests of other servers are sent back, and all are refused, taken or not', async () => {
  const { waiting, add } = requests()
  const [forwarded, own] = [add(1, 0, true), add(2)]
  waiting.dismissForwarded()
  expect(await forwarded).toBe('not_leader')
  expect(waiting.take().map(({ count }) => count)).toEqual([2])
  const later = add(3)
  waiting.rejectAll(() => new Error('stopping'))
  await expect(own).rejects.toThrow('stopping')
  await expect(later).rejects.toThrow('stopping')
  expect(waiting.isEmpty).toBe(true)
})
