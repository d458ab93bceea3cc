import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { TEXT_BYTES_MAX } from '../../../src/store/table/layout/broadcast.js'
import { WakeUps } from '../../../src/store/table/layout/wake-ups.js'
import { MemoryBroadcast } from './memory-broadcast.js'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

/** Time passes, and what is sent arrives. */
async function pass(ms = 10): Promise<void> {
  for (let left = ms; left > 0; left -= 10) {
    for (let turns = 0; turns < 4; turns++) await new Promise((next) => setImmediate(next))
    await vi.advanceTimersByTimeAsync(Math.min(left, 10))
  }
}

function twoOn(broadcast: MemoryBroadcast) {
  return { here: new WakeUps(broadcast), there: new WakeUps(broadcast) }
}

test('a server is told of what it listens for, and nothing is sent while nobody listens', async () => {
  const broadcast = new MemoryBroadcast()
  const { here, there } = twoOn(broadcast)
  const woken = vi.fn()
  there.tell('a')
  await pass()
  expect(broadcast.texts).toEqual([])
  const end = here.listen('a', woken)
  await pass()
  there.tell('b')
  await pass()
  expect(woken).not.toHaveBeenCalled()
  expect(broadcast.texts).toHaveLength(1)
  there.tell('a')
  there.tell('a')
  await pass()
  expect(woken).toHaveBeenCalledTimes(1)
  expect(broadcast.texts).toHaveLength(2)
  end()
  there.tell('a')
  await pass()
  expect(woken).toHaveBeenCalledTimes(1)
})

test('listeners at the same server are woken at once, with and without a broadcast', () => {
  for (const wakeUps of [new WakeUps(), new WakeUps(new MemoryBroadcast())]) {
    const woken = vi.fn()
    wakeUps.listen('a', woken)
    wakeUps.follow('b', woken)
    wakeUps.tell('a')
    wakeUps.announce('b')
    expect(woken).toHaveBeenCalledTimes(2)
    wakeUps.close()
    wakeUps.tell('a')
    expect(woken).toHaveBeenCalledTimes(2)
  }
})

test('what is announced needs no listener to say so, and is not said again and again', async () => {
  const broadcast = new MemoryBroadcast()
  const { here, there } = twoOn(broadcast)
  const woken = vi.fn()
  here.follow('a', woken)
  there.announce('a')
  await pass(60_000)
  expect(woken).toHaveBeenCalledTimes(1)
  expect(broadcast.texts).toHaveLength(1)
})

test('a server says again what it listens for, also to servers that come later, until it listens no more', async () => {
  const broadcast = new MemoryBroadcast()
  const { here } = twoOn(broadcast)
  const woken = vi.fn()
  const end = here.listen('a', woken)
  await pass(20_000)
  const late = new WakeUps(broadcast)
  await pass(6000)
  late.tell('a')
  await pass()
  expect(woken).toHaveBeenCalledTimes(1)
  end()
  await pass(20_000)
  const sent = broadcast.texts.length
  late.tell('a')
  await pass(60_000)
  expect(broadcast.texts).toHaveLength(sent)
})

test('a listener for a while leaves by itself, once for each topic', async () => {
  const broadcast = new MemoryBroadcast()
  const { here, there } = twoOn(broadcast)
  const woken = vi.fn()
  for (let calls = 0; calls < 5; calls++) {
    here.listenAWhile('a', woken)
    await pass(6000)
    there.tell('a')
    await pass()
    expect(woken).toHaveBeenCalledTimes(calls + 1)
  }
  await pass(40_000)
  const sent = broadcast.texts.length
  there.tell('a')
  await pass(20_000)
  expect(woken).toHaveBeenCalledTimes(5)
  expect(broadcast.texts).toHaveLength(sent)
})

test('no text is longer than its bound: with more topics everybody is woken, or told of everything', async () => {
  const broadcast = new MemoryBroadcast()
  const { here, there } = twoOn(broadcast)
  const woken = Array.from({ length: 1000 }, () => vi.fn())
  const most = Math.floor((TEXT_BYTES_MAX - 8) / 24)
  for (const [i, wake] of woken.slice(0, most).entries()) here.listen(`topic ${i}`, wake)
  await pass()
  for (let i = 0; i < most; i++) there.tell(`topic ${i}`)
  await pass()
  expect(woken.filter((wake) => wake.mock.calls.length === 1)).toHaveLength(most)
  expect(broadcast.texts.map((text) => text.length)).toEqual([8 + 12 * most, 8 + 12 * most])
  for (const [i, wake] of woken.entries()) if (i >= most) here.listen(`topic ${i}`, wake)
  await pass()
  there.tell('topic 999')
  await pass()
  expect(woken[999]).toHaveBeenCalledTimes(1)
  for (let i = 0; i <= most; i++) there.tell(`topic ${i}`)
  await pass()
  expect(woken[999]).toHaveBeenCalledTimes(2)
  expect(broadcast.texts.slice(2).map((text) => text.slice(8, 10))).toEqual([
    '?*',
    expect.stringMatching(/^!\w|^!-/),
    '!*',
  ])
})

test('when texts arrive again, all are woken, and the server says what it listens for', async () => {
  const broadcast = new MemoryBroadcast(3)
  const { here, there } = twoOn(broadcast)
  broadcast.isOpen = false
  const woken = vi.fn()
  here.listen('a', woken)
  here.follow('b', woken)
  expect(here.patience(1000)).toBe(1)
  there.tell('a')
  there.announce('b')
  await pass()
  expect(woken).not.toHaveBeenCalled()
  broadcast.reopen()
  expect(woken).toHaveBeenCalledTimes(2)
  expect([here.patience(0), here.patience(1000)]).toEqual([1, 3])
  await pass()
  there.tell('a')
  await pass()
  expect(woken).toHaveBeenCalledTimes(3)
})
