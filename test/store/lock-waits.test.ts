import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { KvError } from '../../src/errors/kv-error.js'
import { type LockWaitOptions, LockWaits, type Turn } from '../../src/store/lock-waits.js'
import type { Timestamp } from '../../src/timestamp.js'
import { text, turn, utf8 } from './support.js'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
})
afterEach(() => {
  expect(vi.getTimerCount()).toBe(0) // Each test ends what it began.
  vi.useRealTimers()
})

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 75)
const WAKE_UP_DELAY_MS = 20

type Outcome = 'waiting' | 'turn' | 'timeout' | 'deadlock' | { readonly error: unknown }

interface Request {
  readonly startTs: Timestamp
  readonly key: string
  outcome: Outcome
  turn: Turn | undefined
  /** Of a deadlock. */
  chain: string[] | undefined
}

/** `10>20:b`: the transaction at 10 waits for the one at 20, which holds `b`. */
function chainOf(error: KvError<'deadlock'>): string[] {
  return error.fields.waitChain.map(({ txn, waitForTxn, key }) => `${txn}>${waitForTxn}:${text(key)}`)
}

/** Locks, and the requests of a caller that does as `LockWaits` asks. */
class Scene {
  readonly holders = new Map<string, Timestamp>()
  readonly requests: Request[] = []
  holderOfCalls = 0
  readonly waits: LockWaits

  constructor(locks: Record<string, Timestamp> = {}, options?: { wakeUpDelayMs?: number }) {
    for (const [key, startTs] of Object.entries(locks)) this.holders.set(key, startTs)
    this.waits = new LockWaits((key) => {
      this.holderOfCalls++
      return this.holders.get(text(key))
    }, options)
  }

  /** Asks for a lock that is not free. A deadlock at once is an outcome like the others, but nobody has waited. */
  wait(startTs: Timestamp, key: string, options: Partial<LockWaitOptions> = {}): Request {
    const request: Request = { startTs, key, outcome: 'waiting', turn: undefined, chain: undefined }
    this.requests.push(request)
    const failed = (error: unknown): void => {
      if (error instanceof KvError && error.code === 'deadlock') {
        expect(error.fields).toMatchObject({ lockTs: this.holders.get(key), lockKey: utf8(key) })
        request.outcome = 'deadlock'
        request.chain = chainOf(error as KvError<'deadlock'>)
      } else request.outcome = { error }
    }
    let waiting: Promise<Turn | undefined>
    try {
      waiting = this.waits.enqueue(utf8(key), startTs, { timeoutMs: 1000, ...options })
    } catch (error) {
      failed(error)
      return request
    }
    waiting.then((given) => {
      request.turn = given
      request.outcome = given === undefined ? 'timeout' : 'turn'
    }, failed)
    return request
  }

  lock(startTs: Timestamp, key: string): void {
    expect(this.holders.has(key)).toBe(false)
    this.holders.set(key, startTs)
    this.waits.acquired(startTs)
  }

  release(key: string): void {
    this.holders.delete(key)
    this.waits.released(utf8(key))
  }

  /** Who was given a turn and has not done it. */
  get trying(): Request[] {
    return this.requests.filter(({ outcome }) => outcome === 'turn')
  }

  /** Times out who still waits. */
  async end(): Promise<void> {
    vi.advanceTimersByTime(1e9)
    await turn()
    for (const { turn } of this.requests) turn?.done()
    vi.advanceTimersByTime(WAKE_UP_DELAY_MS)
    expect(this.waits.size).toBe(0)
    expect(this.waits.isIdle).toBe(true)
  }
}

async function pass(ms: number): Promise<void> {
  vi.advanceTimersByTime(ms)
  await turn()
}

describe('order', () => {
  const cases = [
    { name: 'by start_ts, not by arrival', arrivals: [30, 10, 20], want: [1, 2, 0] },
    { name: 'in order of arrival already', arrivals: [10, 20, 30], want: [0, 1, 2] },
    { name: 'requests of one transaction: by arrival', arrivals: [20, 10, 20, 10, 20], want: [1, 3, 0, 2, 4] },
    { name: 'numbers, not text', arrivals: [100, 9, 20], want: [1, 2, 0] },
  ]
  for (const { name, arrivals, want } of cases) {
    test(name, async () => {
      const scene = new Scene({ k: 1 })
      const requests = arrivals.map((startTs) => scene.wait(startTs, 'k'))
      const served: number[] = []
      expect(scene.waits.size).toBe(arrivals.length)
      while (served.length < arrivals.length) {
        scene.release('k')
        await turn()
        const index = requests.findIndex(({ turn }, i) => turn !== undefined && !served.includes(i))
        served.push(index)
        expect(scene.waits.size).toBe(arrivals.length - served.length)
        scene.lock(arrivals[index] as number, 'k')
        requests[index]?.turn?.done()
      }
      expect(served).toEqual(want)
      await scene.end()
    })
  }

  test('one release wakes one waiter, of that key', async () => {
    const scene = new Scene({ a: 1, b: 1 })
    const [first, second, other] = [scene.wait(10, 'a'), scene.wait(20, 'a'), scene.wait(5, 'b')]
    scene.release('a')
    await turn()
    expect([first, second, other].map(({ outcome }) => outcome)).toEqual(['turn', 'waiting', 'waiting'])
    await scene.end()
  })

  test('the place is taken before enqueue returns', async () => {
    const scene = new Scene({ k: 1 })
    const request = scene.wait(10, 'k')
    expect(scene.waits.size).toBe(1)
    scene.release('k')
    expect(scene.waits.claimant(utf8('k'))).toBe(10)
    await turn()
    expect(request.outcome).toBe('turn')
    await scene.end()
  })

  test('a release that nobody waits for is not remembered', async () => {
    const scene = new Scene({ k: 1 })
    scene.release('k')
    expect(scene.waits.isIdle).toBe(true)
    scene.lock(1, 'k')
    const request = scene.wait(10, 'k')
    await pass(WAKE_UP_DELAY_MS * 2)
    expect(request.outcome).toBe('waiting')
    await scene.end()
  })

  test('bytes that are no text are keys too', async () => {
    const held = Uint8Array.of(0xff, 0)
    const waits = new LockWaits((key) => (key[0] === 0xff ? 1 : undefined))
    const waiting = waits.enqueue(held, 10, { timeoutMs: 1000 })
    waits.released(Uint8Array.of(0xfe, 0))
    expect(waits.claimant(held)).toBeUndefined()
    waits.released(Uint8Array.of(0xff, 0))
    ;(await waiting)?.done()
    expect(waits.isIdle).toBe(true)
  })
})

describe('the end of a wait without a turn', () => {
  for (const timeoutMs of [1, 1000, 3_600_000]) {
    test(`time is over after ${timeoutMs} ms, not before`, async () => {
      const scene = new Scene({ k: 1 })
      const request = scene.wait(10, 'k', { timeoutMs })
      await pass(timeoutMs - 1)
      expect(request.outcome).toBe('waiting')
      await pass(1)
      expect(request.outcome).toBe('timeout')
      expect(scene.waits.size).toBe(0)
      expect(scene.waits.isIdle).toBe(true)
    })
  }

  test('a time that setTimeout cannot count to is long, not short', async () => {
    const scene = new Scene({ k: 1 })
    const request = scene.wait(10, 'k', { timeoutMs: Number.POSITIVE_INFINITY })
    await pass(3_600_000)
    expect(request.outcome).toBe('waiting')
    scene.release('k')
    await scene.end()
  })

  test('one that left is passed over', async () => {
    const scene = new Scene({ k: 1 })
    const gone = scene.wait(10, 'k', { timeoutMs: 5 })
    const other = scene.wait(10, 'k')
    const third = scene.wait(5, 'k', { timeoutMs: 7 })
    await pass(10)
    scene.release('k')
    await turn()
    expect([gone, other, third].map(({ outcome }) => outcome)).toEqual(['timeout', 'turn', 'timeout'])
    await scene.end()
  })

  test('abort rejects with the reason', async () => {
    const scene = new Scene({ k: 1 })
    const controller = new AbortController()
    const [request, other] = [scene.wait(10, 'k', { signal: controller.signal }), scene.wait(20, 'k')]
    const reason = new Error('the client went away')
    controller.abort(reason)
    expect(scene.waits.size).toBe(1)
    await turn()
    expect(request.outcome).toEqual({ error: reason })
    expect(other.outcome).toBe('waiting')
    await scene.end()
  })

  test('an aborted signal: no wait begins', async () => {
    const scene = new Scene({ k: 1 })
    const reason = new Error('the client went away')
    const request = scene.wait(10, 'k', { signal: AbortSignal.abort(reason) })
    expect(scene.waits.isIdle).toBe(true)
    await turn()
    expect(request.outcome).toEqual({ error: reason })
  })

  test('nothing stays registered at the signal', async () => {
    const scene = new Scene({ k: 1, l: 1 })
    const { signal } = new AbortController()
    const added = vi.spyOn(signal, 'addEventListener')
    const removed = vi.spyOn(signal, 'removeEventListener')
    scene.wait(10, 'k', { signal })
    scene.wait(10, 'l', { signal, timeoutMs: 1 })
    scene.release('k')
    await pass(1)
    expect(added).toHaveBeenCalledTimes(1) // One for all waits.
    expect(removed).toHaveBeenCalledTimes(1)
    for (const [index, call] of added.mock.calls.entries())
      expect(removed.mock.calls[index]?.slice(0, 2)).toEqual(call.slice(0, 2))
    await scene.end()
  })

  const outcomes = [
    { name: 'abort', happen: (controller: AbortController) => controller.abort(new Error('too late')) },
    { name: 'timeout', happen: () => vi.advanceTimersByTime(1000) },
    { name: 'deadlock', happen: (_: AbortController, scene: Scene) => scene.waits.acquired(10) },
    { name: 'close', happen: (_: AbortController, scene: Scene) => scene.waits.close(new Error('too late')) },
  ]
  for (const { name, happen } of outcomes) {
    test(`${name} in the moment of the wake-up comes too late: the turn is given, and passes on`, async () => {
      const scene = new Scene({ k: 1 })
      const controller = new AbortController()
      const first = scene.wait(10, 'k', { signal: controller.signal })
      scene.release('k')
      const second = name === 'close' ? undefined : scene.wait(20, 'k', { timeoutMs: 5000 })
      happen(controller, scene)
      await turn()
      expect(first.outcome).toBe('turn')
      first.turn?.done()
      await pass(WAKE_UP_DELAY_MS)
      if (second !== undefined) expect(second.outcome).toBe('turn')
      await scene.end()
    })
  }

  test('close ends all waits, and later ones; an open turn can be done', async () => {
    const scene = new Scene({ a: 1, b: 1 })
    const woken = scene.wait(5, 'a')
    scene.release('a')
    await turn()
    const waiting = [scene.wait(10, 'a'), scene.wait(10, 'b'), scene.wait(20, 'b')]
    const error = new Error('the store closes')
    scene.waits.close(error)
    scene.waits.close(new Error('again'))
    waiting.push(scene.wait(30, 'b'))
    await turn()
    for (const { outcome } of waiting) expect(outcome).toEqual({ error })
    expect(scene.waits.size).toBe(0)
    woken.turn?.done()
    scene.release('b')
    expect(scene.waits.isIdle).toBe(true)
  })
})

describe('turns', () => {
  /** 10 was woken and tries; 20 and 30 wait. */
  async function awoken(): Promise<{ scene: Scene; first: Request; second: Request; third: Request }> {
    const scene = new Scene({ k: 1 })
    const [third, first, second] = [scene.wait(30, 'k'), scene.wait(10, 'k'), scene.wait(20, 'k')]
    scene.release('k')
    await turn()
    expect(first.outcome).toBe('turn')
    return { scene, first, second, third }
  }
  const claimant = (scene: Scene) => scene.waits.claimant(utf8('k'))

  test('the claimant is the woken one, until its turn is done', async () => {
    const scene = new Scene({ k: 1 })
    expect(claimant(scene)).toBeUndefined()
    const request = scene.wait(10, 'k')
    expect(claimant(scene)).toBeUndefined()
    scene.release('k')
    await turn()
    expect(claimant(scene)).toBe(10)
    expect(scene.waits.size).toBe(0)
    expect(scene.waits.isIdle).toBe(false)
    request.turn?.done()
    expect(claimant(scene)).toBeUndefined()
    expect(scene.waits.isIdle).toBe(true)
  })

  test('done with the lock: the rest wait for its release', async () => {
    const { scene, first, second } = await awoken()
    scene.lock(10, 'k')
    first.turn?.done()
    await pass(WAKE_UP_DELAY_MS * 10)
    expect(second.outcome).toBe('waiting')
    scene.release('k')
    await turn()
    expect(second.outcome).toBe('turn')
    await scene.end()
  })

  test('done without the lock: the next is woken after the delay, and then the one after it', async () => {
    const { scene, first, second, third } = await awoken()
    first.turn?.done()
    await pass(WAKE_UP_DELAY_MS - 1)
    expect(second.outcome).toBe('waiting')
    await pass(1)
    expect([second.outcome, third.outcome]).toEqual(['turn', 'waiting'])
    await pass(WAKE_UP_DELAY_MS * 10)
    expect(third.outcome).toBe('waiting')
    second.turn?.done()
    await pass(WAKE_UP_DELAY_MS)
    expect(third.outcome).toBe('turn')
    await scene.end()
  })

  test('the delay is an option', async () => {
    const scene = new Scene({ k: 1 }, { wakeUpDelayMs: 5 })
    const [first, second] = [scene.wait(10, 'k'), scene.wait(20, 'k')]
    scene.release('k')
    await turn()
    first.turn?.done()
    await pass(4)
    expect(second.outcome).toBe('waiting')
    await pass(1)
    expect(second.outcome).toBe('turn')
    await scene.end()
  })

  test('the delay does not keep a process alive; the wait does', async () => {
    const { scene, first } = await awoken()
    // A spy on it would be restored again by another file of this process, when these timers are the real ones no more.
    const { setTimeout: start } = globalThis
    const started: NodeJS.Timeout[] = []
    globalThis.setTimeout = ((run: () => void, ms?: number) => {
      const timer = start(run, ms)
      started.push(timer)
      return timer
    }) as typeof setTimeout
    first.turn?.done()
    scene.wait(40, 'k')
    globalThis.setTimeout = start
    expect(started.map((timer) => timer.hasRef())).toEqual([false, true])
    await scene.end()
  })

  test('locked again when the delay is over: the rest wait for that release', async () => {
    const { scene, first, second } = await awoken()
    first.turn?.done()
    await pass(WAKE_UP_DELAY_MS - 1)
    scene.lock(10, 'k')
    await pass(WAKE_UP_DELAY_MS * 10)
    expect(second.outcome).toBe('waiting')
    scene.release('k')
    await turn()
    expect(second.outcome).toBe('turn')
    await scene.end()
  })

  test('a release during the delay wakes at once, and the delay wakes nobody else', async () => {
    const { scene, first, second, third } = await awoken()
    first.turn?.done()
    scene.lock(40, 'k')
    scene.release('k')
    await turn()
    expect(second.outcome).toBe('turn')
    expect(vi.getTimerCount()).toBe(1) // The timeout of the third.
    await pass(WAKE_UP_DELAY_MS * 2)
    expect(third.outcome).toBe('waiting')
    await scene.end()
  })

  test('a release while a turn is open wakes nobody else; done sees that the key is free', async () => {
    const { scene, first, second } = await awoken()
    scene.lock(10, 'k')
    scene.release('k')
    await pass(WAKE_UP_DELAY_MS * 2)
    expect(second.outcome).toBe('waiting')
    first.turn?.done()
    await pass(WAKE_UP_DELAY_MS)
    expect(second.outcome).toBe('turn')
    await scene.end()
  })

  test('done is idempotent, even when another has its turn meanwhile', async () => {
    const { scene, first, second, third } = await awoken()
    first.turn?.done()
    first.turn?.done()
    await pass(WAKE_UP_DELAY_MS)
    first.turn?.done()
    expect(claimant(scene)).toBe(20)
    await pass(WAKE_UP_DELAY_MS)
    expect([second.outcome, third.outcome]).toEqual(['turn', 'waiting'])
    await scene.end()
  })

  test('the lowest start_ts of those who wait when the delay is over', async () => {
    const { scene, first, second } = await awoken()
    first.turn?.done()
    const late = scene.wait(15, 'k')
    await pass(WAKE_UP_DELAY_MS)
    expect([late.outcome, second.outcome]).toEqual(['turn', 'waiting'])
    await scene.end()
  })

  test('who leaves during the delay does not take the wake-up away', async () => {
    const { scene, first, second, third } = await awoken()
    const controller = new AbortController()
    const head = scene.wait(15, 'k', { signal: controller.signal })
    first.turn?.done()
    controller.abort(new Error('gone'))
    await pass(WAKE_UP_DELAY_MS)
    expect([head.outcome, second.outcome, third.outcome]).toEqual([{ error: new Error('gone') }, 'turn', 'waiting'])
    await scene.end()
  })

  test('when the last waiter leaves during the delay, nothing is left', async () => {
    const scene = new Scene({ k: 1 })
    const [first] = [scene.wait(10, 'k'), scene.wait(20, 'k', { timeoutMs: 5 })]
    scene.release('k')
    await turn()
    first.turn?.done()
    expect(scene.waits.isIdle).toBe(false)
    await pass(5)
    expect(scene.waits.isIdle).toBe(true)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('the woken one can wait again: another was faster', async () => {
    const { scene, first, second } = await awoken()
    scene.lock(5, 'k')
    first.turn?.done()
    const again = scene.wait(10, 'k')
    scene.release('k')
    await turn()
    expect([again.outcome, second.outcome]).toEqual(['turn', 'waiting'])
    await scene.end()
  })

  test('a wait for a key that nobody holds any more is not stranded', async () => {
    const scene = new Scene()
    const request = scene.wait(10, 'k')
    await pass(WAKE_UP_DELAY_MS)
    expect(request.outcome).toBe('turn')
    await scene.end()
  })

  test('a waiter that comes while a turn is open waits for its end', async () => {
    const scene = new Scene({ k: 1 })
    const first = scene.wait(10, 'k')
    scene.release('k')
    const second = scene.wait(5, 'k')
    await pass(WAKE_UP_DELAY_MS * 2)
    expect(second.outcome).toBe('waiting')
    first.turn?.done()
    await pass(WAKE_UP_DELAY_MS)
    expect(second.outcome).toBe('turn')
    await scene.end()
  })
})

describe('deadlock', () => {
  const cases: {
    name: string
    locks: Record<string, Timestamp>
    waits?: readonly (readonly [Timestamp, string])[]
    asks: readonly [Timestamp, string]
    want: readonly string[] | 'waiting'
  }[] = [
    {
      name: 'two transactions',
      locks: { a: 10, b: 20 },
      waits: [[10, 'b']],
      asks: [20, 'a'],
      want: ['10>20:b', '20>10:a'],
    },
    {
      name: 'two transactions, the younger waits first',
      locks: { a: 10, b: 20 },
      waits: [[20, 'a']],
      asks: [10, 'b'],
      want: ['20>10:a', '10>20:b'],
    },
    {
      name: 'three transactions',
      locks: { a: 10, b: 20, c: 30 },
      waits: [
        [20, 'c'],
        [10, 'b'],
      ],
      asks: [30, 'a'],
      want: ['10>20:b', '20>30:c', '30>10:a'],
    },
    {
      name: 'bystanders are no part of the chain',
      locks: { a: 10, b: 20, c: 30, d: 10 },
      waits: [
        [40, 'a'],
        [50, 'b'],
        [10, 'b'],
        [60, 'd'],
        [20, 'c'],
      ],
      asks: [30, 'd'],
      want: ['10>20:b', '20>30:c', '30>10:d'],
    },
    {
      name: 'through one of several waits of a transaction: the shortest way',
      locks: { a: 10, b: 20, c: 30, d: 40, e: 50 },
      waits: [
        [10, 'b'],
        [20, 'd'],
        [40, 'e'],
        [10, 'c'],
        [30, 'e'],
      ],
      asks: [50, 'a'],
      want: ['10>30:c', '30>50:e', '50>10:a'],
    },
    {
      name: 'a chain without a cycle',
      locks: { a: 10, b: 20, c: 30 },
      waits: [
        [10, 'b'],
        [20, 'c'],
      ],
      asks: [40, 'a'],
      want: 'waiting',
    },
    {
      name: 'two ways to one holder are no cycle',
      locks: { a: 10, b: 20, c: 30 },
      waits: [
        [10, 'c'],
        [20, 'c'],
        [40, 'a'],
      ],
      asks: [40, 'b'],
      want: 'waiting',
    },
    { name: 'a wait for the own lock', locks: { a: 10 }, asks: [10, 'a'], want: 'waiting' },
    {
      name: 'a wait for one that waits for its own lock',
      locks: { a: 10 },
      waits: [[10, 'a']],
      asks: [20, 'a'],
      want: 'waiting',
    },
    {
      name: 'behind a wait for its own lock there can be a cycle',
      locks: { a: 10, b: 20 },
      waits: [
        [10, 'a'],
        [10, 'b'],
      ],
      asks: [20, 'a'],
      want: ['10>20:b', '20>10:a'],
    },
    {
      name: 'two requests of one transaction for one key',
      locks: { a: 10, b: 20 },
      waits: [
        [20, 'a'],
        [20, 'a'],
      ],
      asks: [20, 'a'],
      want: 'waiting',
    },
    {
      name: 'another waiter of the key is no holder',
      locks: { a: 10, b: 20 },
      waits: [
        [30, 'a'],
        [40, 'a'],
        [30, 'b'],
      ],
      asks: [40, 'b'],
      want: 'waiting',
    },
  ]
  for (const { name, locks, waits = [], asks, want } of cases) {
    test(name, async () => {
      const scene = new Scene(locks)
      for (const [startTs, key] of waits) expect(scene.wait(startTs, key).outcome).toBe('waiting')
      const request = scene.wait(...asks)
      // A deadlock is thrown, not a rejection, and nothing of the request stays.
      if (want === 'waiting') expect(request.outcome).toBe('waiting')
      else expect(request.chain).toEqual(want)
      expect(scene.waits.size).toBe(waits.length + (want === 'waiting' ? 1 : 0))
      await scene.end()
    })
  }

  test('a hundred transactions', async () => {
    const locks = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`k${i}`, 1000 + i]))
    const scene = new Scene(locks)
    for (let i = 98; i >= 0; i--) scene.wait(1000 + i, `k${i + 1}`)
    const want = Array.from({ length: 99 }, (_, i) => `${1000 + i}>${1001 + i}:k${i + 1}`)
    expect(scene.wait(1099, 'k0').chain).toEqual([...want, '1099>1000:k0'])
    await scene.end()
  })

  test('the message names the three', () => {
    const scene = new Scene({ a: 10, b: 20 })
    const waiting = scene.waits.enqueue(utf8('b'), 10, { timeoutMs: 1000 })
    expect(() => scene.waits.enqueue(utf8('a'), 20, { timeoutMs: 1000 })).toThrow(
      'the transaction at 20 cannot wait for key "a": the transaction at 10, which holds its lock, waits for it, directly',
    )
    vi.advanceTimersByTime(1000)
    return waiting
  })

  test('the victim can ask again once the other is gone', async () => {
    const scene = new Scene({ a: 10, b: 20 })
    const request = scene.wait(10, 'b', { timeoutMs: 5 })
    expect(scene.wait(20, 'a').outcome).toBe('deadlock')
    await pass(5)
    expect(request.outcome).toBe('timeout')
    expect(scene.wait(20, 'a').outcome).toBe('waiting')
    await scene.end()
  })

  const leavings: { name: string; leave: (scene: Scene, controller: AbortController) => void }[] = [
    { name: 'aborted', leave: (_, controller) => controller.abort() },
    { name: 'woken', leave: (scene) => scene.release('b') },
    {
      name: 'behind another holder now',
      leave: (scene) => {
        scene.holders.set('b', 99)
      },
    },
  ]
  for (const { name, leave } of leavings) {
    test(`none with a waiter that is ${name}`, async () => {
      const scene = new Scene({ a: 10, b: 20 })
      const controller = new AbortController()
      scene.wait(10, 'b', { signal: controller.signal })
      leave(scene, controller)
      expect(scene.wait(20, 'a').outcome).toBe('waiting')
      await scene.end()
    })
  }

  test('the edges follow a lock from hand to hand', async () => {
    const scene = new Scene({ a: 10, b: 20 })
    scene.wait(30, 'b')
    scene.wait(40, 'b')
    scene.release('b')
    await turn()
    scene.lock(30, 'b') // 40 waits for 30 now.
    scene.trying[0]?.turn?.done()
    scene.lock(40, 'c')
    expect(scene.wait(30, 'c').chain).toEqual(['40>30:b', '30>40:c'])
    expect(scene.wait(20, 'c').outcome).toBe('waiting')
    await scene.end()
  })

  test('who was woken holds nothing yet, and closes the cycle only by taking the lock', async () => {
    const scene = new Scene({ a: 1, b: 20 })
    const elsewhere = scene.wait(10, 'b')
    const woken = scene.wait(10, 'a')
    scene.release('a')
    const behind = scene.wait(20, 'a')
    await turn()
    expect([woken.outcome, behind.outcome]).toEqual(['turn', 'waiting'])
    scene.lock(10, 'a')
    woken.turn?.done()
    await turn()
    expect(elsewhere.chain).toEqual(['20>10:a', '10>20:b'])
    expect(behind.outcome).toBe('waiting')
    await scene.end()
  })
})

describe('acquired, with concurrent requests of one transaction', () => {
  test('ends the waits that close a cycle, and no others', async () => {
    const scene = new Scene({ a: 20, b: 30, c: 40, k: 1 })
    scene.wait(20, 'k')
    scene.wait(40, 'a')
    const waits = ['a', 'b', 'c', 'a'].map((key) => scene.wait(10, key))
    scene.holders.delete('k')
    scene.lock(10, 'k')
    expect(scene.waits.size).toBe(3)
    await turn()
    expect(waits.map(({ chain }) => chain)).toEqual([
      ['20>10:k', '10>20:a'],
      undefined,
      ['40>20:a', '20>10:k', '10>40:c'],
      ['20>10:k', '10>20:a'],
    ])
    expect(waits[1]?.outcome).toBe('waiting')
    await scene.end()
  })

  test('of a transaction that waits nowhere costs nothing', async () => {
    const scene = new Scene({ a: 20 })
    scene.wait(30, 'a')
    const before = scene.holderOfCalls
    scene.waits.acquired(10)
    expect(scene.holderOfCalls).toBe(before)
    await scene.end()
  })

  test('a wait for the key that was just taken is a wait for the own lock', async () => {
    const scene = new Scene({ k: 1 })
    const request = scene.wait(10, 'k')
    scene.holders.set('k', 10)
    scene.waits.acquired(10)
    await turn()
    expect(request.outcome).toBe('waiting')
    await scene.end()
  })
})

test('ten thousand waiters: every operation asks for a few holders', { tags: ['long'] }, async () => {
  const count = 10_000
  const scene = new Scene({ k: 1, other: 2 })
  scene.wait(1, 'other') // The holder waits, too.
  const callsOf = (body: () => void): number => {
    const before = scene.holderOfCalls
    body()
    return scene.holderOfCalls - before
  }
  // 7919 is a prime, so this is a permutation: they come in no order.
  for (let i = 0; i < count; i++) {
    const startTs = 10 + ((i * 7919) % count)
    expect(callsOf(() => scene.wait(startTs, 'k', { timeoutMs: 60_000 }))).toBeLessThan(5)
  }
  const byStartTs = [...scene.requests].sort((a, b) => a.startTs - b.startTs)
  const [elsewhere, ...inOrder] = byStartTs as [Request, ...Request[]]
  for (const request of inOrder.slice(0, count / 2)) {
    expect(callsOf(() => scene.release('k'))).toBeLessThan(5)
    expect(scene.waits.claimant(utf8('k'))).toBe(request.startTs)
    expect(callsOf(() => scene.lock(request.startTs, 'k'))).toBeLessThan(5)
    await Promise.resolve()
    expect(callsOf(() => request.turn?.done())).toBeLessThan(5)
  }
  expect(scene.waits.size).toBe(count / 2 + 1)
  expect(callsOf(() => scene.waits.close(new Error('the store closes')))).toBe(0)
  expect(scene.waits.isIdle).toBe(true)
  await turn()
  for (const { outcome } of [elsewhere, ...inOrder.slice(count / 2)])
    expect(outcome).toEqual({ error: new Error('the store closes') })
})

// Everything happens at multiples of 10 ms, the ends of waits 5 ms off: no two events of one key at one time.
const SHORT_MS = [15, 35]
const LONG_MS = 1_000_005
const TICK_MS = 10

interface ModelWaiter {
  readonly id: number
  readonly startTs: Timestamp
  readonly key: string
  readonly endsAt: number
  outcome: Outcome
  isDone: boolean
}

/** What LockWaits means: everything computed from lists, and a graph that is made again for each question. */
class Model {
  nowMs = 0
  readonly holders = new Map<string, Timestamp>()
  readonly waiters: ModelWaiter[] = []
  readonly wakeAt = new Map<string, number>()

  waiting(key?: string): ModelWaiter[] {
    return this.waiters.filter((waiter) => waiter.outcome === 'waiting' && (key === undefined || waiter.key === key))
  }
  claimant(key: string): ModelWaiter | undefined {
    return this.waiters.find((waiter) => waiter.key === key && waiter.outcome === 'turn' && !waiter.isDone)
  }
  edges(): { from: Timestamp; to: Timestamp; key: string }[] {
    return this.waiting().flatMap(({ startTs, key }) => {
      const to = this.holders.get(key)
      return to === undefined || to === startTs ? [] : [{ from: startTs, to, key }]
    })
  }
  reaches(from: Timestamp, to: Timestamp): boolean {
    const edges = this.edges()
    let reached = new Set([from])
    for (;;) {
      const more = new Set([...reached, ...edges.filter((edge) => reached.has(edge.from)).map((edge) => edge.to)])
      if (more.size === reached.size) return reached.has(to)
      reached = more
    }
  }
  closesCycle(startTs: Timestamp, key: string): boolean {
    const holder = this.holders.get(key)
    return holder !== undefined && holder !== startTs && this.reaches(holder, startTs)
  }
  enqueue(startTs: Timestamp, key: string, timeoutMs: number): void {
    const outcome = this.closesCycle(startTs, key) ? 'deadlock' : 'waiting'
    this.waiters.push({
      id: this.waiters.length,
      startTs,
      key,
      endsAt: this.nowMs + timeoutMs,
      outcome,
      isDone: false,
    })
    if (outcome === 'waiting') this.delay(key)
  }
  lock(startTs: Timestamp, key: string): void {
    this.holders.set(key, startTs)
    const closing = this.waiting().filter((each) => each.startTs === startTs && this.closesCycle(startTs, each.key))
    for (const each of closing) this.leave(each, 'deadlock')
  }
  release(key: string): void {
    this.holders.delete(key)
    if (this.claimant(key) === undefined) this.wake(key)
  }
  done(waiter: ModelWaiter): void {
    waiter.isDone = true
    this.delay(waiter.key)
  }
  leave(waiter: ModelWaiter, outcome: Outcome): void {
    waiter.outcome = outcome
    if (this.waiting(waiter.key).length === 0) this.wakeAt.delete(waiter.key)
  }
  tick(): void {
    for (const waiter of this.waiting()) if (waiter.endsAt < this.nowMs + TICK_MS) this.leave(waiter, 'timeout')
    this.nowMs += TICK_MS
    for (const [key, ms] of [...this.wakeAt]) {
      if (ms > this.nowMs) continue
      this.wakeAt.delete(key)
      if (!this.holders.has(key)) this.wake(key)
    }
  }
  wake(key: string): void {
    const [first] = this.waiting(key).sort((a, b) => a.startTs - b.startTs || a.id - b.id)
    if (first === undefined) return
    this.wakeAt.delete(key)
    first.outcome = 'turn'
  }
  delay(key: string): void {
    if (this.waiting(key).length === 0 || this.claimant(key) !== undefined || this.holders.has(key)) return
    if (!this.wakeAt.has(key)) this.wakeAt.set(key, this.nowMs + WAKE_UP_DELAY_MS)
  }
}

describe('property', () => {
  const KEYS = ['a', 'b', 'c', 'd', 'e']
  const startTs = fc.integer({ min: 1, max: 6 })
  const key = fc.constantFrom(...KEYS)
  const step = fc.oneof(
    {
      weight: 8,
      arbitrary: fc.record({
        type: fc.constant('ask' as const),
        startTs,
        key,
        timeoutMs: fc.constantFrom(...SHORT_MS, LONG_MS, LONG_MS),
        respectsClaims: fc.boolean(),
      }),
    },
    { weight: 3, arbitrary: fc.record({ type: fc.constant('release' as const), key }) },
    {
      weight: 4,
      arbitrary: fc.record({
        type: fc.constant('try' as const),
        nth: fc.nat(4),
        takes: fc.boolean(),
        again: fc.boolean(),
      }),
    },
    { weight: 1, arbitrary: fc.record({ type: fc.constant('abort' as const), nth: fc.nat(9) }) },
    { weight: 2, arbitrary: fc.record({ type: fc.constant('tick' as const) }) },
  )

  /** One step of both, by a caller that keeps the rules. */
  class Pair {
    readonly scene = new Scene()
    readonly model = new Model()
    readonly controllers: AbortController[] = []
    readonly aborted = new Error('aborted')
    deadlocks = 0

    ask(startTs: Timestamp, key: string, timeoutMs: number): void {
      const before = this.model.edges()
      this.model.enqueue(startTs, key, timeoutMs)
      const controller = new AbortController()
      this.controllers.push(controller)
      const { chain } = this.scene.wait(startTs, key, { timeoutMs, signal: controller.signal })
      if (chain !== undefined) this.checkChain(chain, startTs, key, before)
    }
    lock(startTs: Timestamp, key: string): void {
      this.model.lock(startTs, key)
      this.scene.lock(startTs, key)
    }
    release(key: string): void {
      this.model.release(key)
      this.scene.release(key)
    }
    done(waiter: ModelWaiter): void {
      this.model.done(waiter)
      this.scene.requests[waiter.id]?.turn?.done()
    }
    tick(): void {
      this.model.tick()
      vi.advanceTimersByTime(TICK_MS)
    }

    /** Real edges, from the holder back to it, over different transactions. */
    checkChain(chain: string[], startTs: Timestamp, key: string, edges: ReturnType<Model['edges']>): void {
      this.deadlocks++
      const known = new Set(edges.map((edge) => `${edge.from}>${edge.to}:${edge.key}`))
      const holder = this.model.holders.get(key)
      expect(chain.at(-1)).toBe(`${startTs}>${holder}:${key}`)
      let at = String(holder)
      for (const entry of chain.slice(0, -1)) {
        expect(known).toContain(entry)
        expect(entry.split('>')[0]).toBe(at)
        at = entry.slice(entry.indexOf('>') + 1, entry.indexOf(':'))
      }
      expect(at).toBe(String(startTs))
      expect(new Set(chain.map((entry) => entry.split('>')[0])).size).toBe(chain.length)
    }

    async expectSame(): Promise<void> {
      // A promise handler behind a promise handler: two rounds of microtasks are enough.
      for (let i = 0; i < 3; i++) await Promise.resolve()
      const { scene, model } = this
      expect(scene.requests.map(({ outcome }) => outcome)).toEqual(model.waiters.map(({ outcome }) => outcome))
      expect(scene.waits.size).toBe(model.waiting().length)
      for (const key of KEYS) expect(scene.waits.claimant(utf8(key))).toBe(model.claimant(key)?.startTs)
      expect(vi.getTimerCount()).toBe(model.waiting().length + model.wakeAt.size)
      const openTurns = KEYS.some((key) => model.claimant(key) !== undefined)
      expect(scene.waits.isIdle).toBe(model.waiting().length === 0 && !openTurns)
      for (const { from, to } of model.edges()) expect(model.reaches(to, from)).toBe(false)
    }
  }

  test('as the model: who waits, who tries, who is refused; and all who can run do, in the end', {
    tags: ['long'],
  }, async () => {
    let deadlocks = 0
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60, size: 'max' }), async (steps) => {
        const pair = new Pair()
        const { model } = pair
        for (const action of steps) {
          if (action.type === 'ask') {
            const holder = model.holders.get(action.key)
            const isClaimed = action.respectsClaims && model.claimant(action.key) !== undefined
            if (holder === undefined && !isClaimed) pair.lock(action.startTs, action.key)
            else pair.ask(action.startTs, action.key, action.timeoutMs)
          } else if (action.type === 'release') {
            if (model.holders.has(action.key)) pair.release(action.key)
          } else if (action.type === 'try') {
            const trying = KEYS.flatMap((key) => model.claimant(key) ?? [])
            const waiter = trying[action.nth % trying.length]
            if (waiter === undefined) continue
            const isFree = !model.holders.has(waiter.key)
            if (isFree && action.takes) pair.lock(waiter.startTs, waiter.key)
            pair.done(waiter)
            if (!isFree && action.again) pair.ask(waiter.startTs, waiter.key, LONG_MS)
          } else if (action.type === 'abort') {
            const waiting = model.waiting()
            const waiter = waiting[action.nth % waiting.length]
            if (waiter === undefined) continue
            model.leave(waiter, { error: pair.aborted })
            pair.controllers[waiter.id]?.abort(pair.aborted)
          } else pair.tick()
          await pair.expectSame()
        }
        deadlocks += pair.deadlocks

        // From here on everybody who has a lock or a turn lets it go, and so everybody who waits long enough gets one.
        const patient = model.waiting().filter(({ endsAt }) => endsAt > model.nowMs + LONG_MS / 2)
        for (const key of [...model.holders.keys()]) pair.release(key)
        await pair.expectSame()
        const trying = (): ModelWaiter[] => KEYS.flatMap((key) => model.claimant(key) ?? [])
        for (let rounds = 0; trying().length + model.waiting().length > 0; rounds++) {
          expect(rounds).toBeLessThan(1000)
          for (const waiter of trying()) pair.done(waiter)
          pair.tick()
          await pair.expectSame()
        }
        for (const { id } of patient) expect(pair.scene.requests[id]?.outcome).toBe('turn')
        expect(pair.scene.waits.isIdle).toBe(true)
      }),
      { numRuns: RUNS },
    )
    expect(deadlocks).toBeGreaterThan(RUNS / 10) // The steps are such that there are some.
  })
})

test('edges of long keys are fewer than asked for', async () => {
  const waits = new LockWaits(() => 1)
  const key = (i: number): Buffer => Buffer.alloc(8192, i)
  const waiting = Array.from({ length: 100 }, (_, i) => waits.enqueue(key(i), i + 2, { timeoutMs: 60_000 }))
  expect(waits.edges(100)).toHaveLength(32)
  expect(waits.edges(5)).toHaveLength(5)
  waits.close(new Error('closed'))
  await Promise.allSettled(waiting)
})
