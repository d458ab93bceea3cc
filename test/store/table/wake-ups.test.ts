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

/** Topics that a server names; see `NAMED_MAX`. */
const NAMED_MAX = 10_000
const PER_TEXT = Math.floor((TEXT_BYTES_MAX - 8) / 12)

/** Listens for so many topics. @returns how often each was woken. */
function listening(to: WakeUps, topics: number): readonly number[] {
  const wakes = Array.from({ length: topics }, () => 0)
  for (const i of wakes.keys())
    to.listen(`topic ${i}`, () => {
      wakes[i] = (wakes[i] ?? 0) + 1
    })
  return wakes
}

function change(at: WakeUps, from: number, to: number): void {
  for (let i = from; i < to; i++) at.tell(`topic ${i}`)
}

function times(of: readonly number[]): readonly number[] {
  return [...new Set(of)].sort()
}

test('many topics are named at once in several texts, and again in texts spread over time', {
  tags: ['long'],
}, async () => {
  const broadcast = new MemoryBroadcast()
  const { here, there } = twoOn(broadcast)
  const wakes = listening(here, NAMED_MAX)
  const texts = Math.ceil(NAMED_MAX / PER_TEXT)
  await pass(10 * texts)
  expect(broadcast.texts).toHaveLength(texts)
  expect(Math.max(...broadcast.texts.map(({ length }) => length))).toBeLessThanOrEqual(TEXT_BYTES_MAX)
  change(there, 0, 2 * NAMED_MAX)
  await pass(10 * texts)
  expect(broadcast.texts).toHaveLength(2 * texts)
  expect(times(wakes)).toEqual([1])
  expect(broadcast.texts.join('')).not.toContain('*')

  let most = 0
  const late = new WakeUps(broadcast)
  for (let before = 2 * texts, ms = 0; ms < 6000; ms += 100, before = broadcast.texts.length) {
    await pass(100)
    most = Math.max(most, broadcast.texts.length - before)
  }
  expect(most).toBe(1)
  change(late, 0, NAMED_MAX)
  await pass(10 * texts)
  expect(times(wakes)).toEqual([2])
})

test('with more topics a server is told of everything, and an import wakes each of its waiters once', {
  tags: ['long'],
}, async () => {
  const CHANGES = 100_000
  const AT_ONCE = 1000
  const broadcast = new MemoryBroadcast()
  const { here, there } = twoOn(broadcast)
  const wakes = listening(here, NAMED_MAX + 1)
  await pass(20)
  expect(broadcast.texts.map((text) => text.slice(8))).toEqual(['?*'])
  for (let from = 0; from < CHANGES; from += AT_ONCE) {
    change(there, from, from + AT_ONCE)
    await pass(20)
  }
  expect(times(wakes)).toEqual([1])
  const told = broadcast.texts.filter((text) => text.includes('!'))
  expect(told).toHaveLength((CHANGES / AT_ONCE) * Math.ceil(AT_ONCE / PER_TEXT))
  expect(told.join('')).not.toContain('*')
  await pass(3000)
  expect(broadcast.texts.at(-1)?.slice(8)).toBe('?*')
})

test('what waits while a text is under way has a bound, beyond which everybody is told to look', async () => {
  const broadcast = new MemoryBroadcast()
  const { here, there } = twoOn(broadcast)
  const wakes = listening(here, NAMED_MAX + 1)
  await pass()
  let arrive = (): void => {}
  vi.spyOn(broadcast, 'send').mockImplementationOnce(() => new Promise((resolve) => (arrive = resolve)))
  change(there, 0, 1)
  await pass()
  change(there, 0, NAMED_MAX + 1)
  await pass()
  expect(broadcast.texts).toHaveLength(1)
  arrive()
  await pass()
  expect(broadcast.texts.slice(1).map((text) => text.slice(8))).toEqual(['!*'])
  expect(times(wakes)).toEqual([1])
})

test('others wake all at most twice a second, and the last time is not lost', async () => {
  const broadcast = new MemoryBroadcast()
  const { here } = twoOn(broadcast)
  const wakes = listening(here, 1)
  const flood = async (ms: number) => {
    for (let left = ms; left > 0; left -= 10) {
      await broadcast.send('somebody!*')
      await pass()
    }
  }
  await flood(10)
  expect(wakes).toEqual([1])
  await flood(1800)
  expect(wakes).toEqual([4])
  await pass(5000)
  expect(wakes).toEqual([5])
  await flood(20)
  expect(wakes).toEqual([6])
  broadcast.reopen()
  expect(wakes).toEqual([7])
  here.close()
  await pass(5000)
  expect(wakes).toEqual([7])
})

test('topics are the same for servers that share a secret, and for nobody else', async () => {
  const broadcast = new MemoryBroadcast()
  const [one, other, stranger] = ['secret', 'secret', 'another'].map(
    (secret) => new WakeUps(broadcast, Buffer.from(secret)),
  )
  const woken = vi.fn()
  one?.listen('a', woken)
  await pass()
  stranger?.tell('a')
  await pass()
  expect(woken).not.toHaveBeenCalled()
  other?.tell('a')
  await pass()
  expect(woken).toHaveBeenCalledTimes(1)
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
