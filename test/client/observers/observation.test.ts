import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { keyText } from '../../../src/bytes/key-text.js'
import { KvError, type Txn, Undetermined } from '../../../src/client/index.js'
import type { Change } from '../../../src/client/observers/change.js'
import { verdictOf } from '../../../src/client/observers/verdict.js'
import type { ErrorFields } from '../../../src/errors/registry.js'
import { failureOf } from '../../coordinator/support.js'
import { utf8 } from '../../store/support.js'
import { AWAY, notification, observe } from './fake-backend.js'

/** The loop of `db.observe` against answers that the test gives, by a clock that the test moves. */

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

/** Runs everything that does not wait for the clock. */
function turns(): Promise<unknown> {
  return vi.advanceTimersByTimeAsync(0)
}

function conflict(fields: Partial<ErrorFields['write_conflict']> = {}): KvError<'write_conflict'> {
  const common = { key: utf8('a'), primary: utf8('a'), startTs: 10, conflictStartTs: 1, conflictCommitTs: 11 }
  return new KvError('write_conflict', 'lost', { ...common, reason: 'optimistic', ...fields })
}
const acknowledged = conflict({ reason: 'acknowledged', observer: 'words', retryable: false })
const runSince = conflict({ reason: 'acknowledged', observer: 'words', retryable: true })
const superseded = conflict({ reason: 'superseded', observer: 'words', retryable: false })

/** A promise that the test fulfils. */
function held(): { readonly done: Promise<void>; readonly end: () => void } {
  let end = (): void => {}
  const done = new Promise<void>((resolve) => {
    end = resolve
  })
  return { done, end }
}

describe('claims', () => {
  test('takes as many as there are free slots, in one call', async () => {
    const runs = [held(), held(), held()]
    let next = 0
    const { backend, observation, ended } = observe({ concurrency: 3, run: () => runs[next++]?.done })
    await turns()
    expect(backend.claims[0]).toMatchObject({ worker: 'me', limit: 3, waitMs: 20_000, leaseMs: 30_000, values: true })
    backend.give(notification('a', 10), notification('b', 11))
    await turns()
    expect(backend.claims[1]).toMatchObject({ limit: 1 })
    backend.give(notification('c', 20))
    await turns()
    expect(backend.claims).toHaveLength(2) // No slot is free.
    runs[0]?.end()
    runs[1]?.end()
    await turns()
    expect(backend.claims.slice(2).map(({ limit }) => limit)).toEqual([2])
    runs[2]?.end()
    observation.stop()
    backend.give()
    await ended
  })

  test('with a batch, a slot takes a batch; no claim is for more than 1000', async () => {
    const { backend, observation, runs, ended } = observe({ concurrency: 64, batch: 100 })
    await turns()
    expect(backend.claims[0]).toMatchObject({ limit: 1000 })
    backend.give(...Array.from({ length: 250 }, (_, i) => notification(`k${i}`, 10 + i)))
    await turns()
    expect(runs.map(({ length }) => length)).toEqual([100, 100, 50])
    expect(backend.prewrites.map(({ startTs }) => startTs)).toEqual([109, 209, 259]) // The last fence of each.
    observation.stop()
    backend.give()
    await ended
  })

  test('does not spin while the server is away, nor while it answers nothing at once', async () => {
    for (const answer of ['away', 'nothing']) {
      const { backend, observation, errors, ended } = observe()
      for (let ms = 0; ms < 60_000; ms += 50) {
        await vi.advanceTimersByTimeAsync(50)
        for (const waiting of backend.waiting.splice(0)) {
          if (answer === 'away') waiting.fail(AWAY)
          else waiting.answer([])
        }
      }
      expect(backend.claims.length).toBeGreaterThan(10)
      expect(backend.claims.length).toBeLessThan(40)
      await turns() // The last claim may have failed just now, or still wait.
      expect(errors.length).toBe(answer === 'away' ? backend.claims.length - backend.waiting.length : 0)
      observation.stop()
      await turns()
      for (const waiting of backend.waiting.splice(0)) waiting.answer([])
      await ended
    }
  })

  test('a wait that ends with nothing is begun again at once', async () => {
    const { backend, observation, ended } = observe()
    await turns()
    await vi.advanceTimersByTimeAsync(20_000)
    backend.give()
    await turns()
    expect(backend.claims).toHaveLength(2)
    observation.stop()
    backend.give()
    await ended
  })

  test('claims that come after the stop are given back', async () => {
    const { backend, observation, runs, ended } = observe()
    await turns()
    expect(backend.waiting[0]?.request.signal).toMatchObject({ aborted: false })
    observation.stop()
    expect(backend.waiting[0]?.request.signal).toMatchObject({ aborted: true })
    backend.give(notification('a', 10), notification('b', 11))
    await ended
    expect(runs).toEqual([])
    expect(backend.released).toEqual([
      { key: utf8('a'), fence: 10 },
      { key: utf8('b'), fence: 11 },
    ])
  })

  test('a refusal that is for good ends it, after what runs', async () => {
    const running = held()
    const { backend, ended } = observe({ run: () => running.done })
    await turns()
    backend.give(notification('a', 10))
    await turns()
    const refusal = new KvError('not_found', 'no such observer', {})
    backend.waiting.shift()?.fail(refusal)
    await turns()
    running.end()
    expect(await failureOf(ended)).toBe(refusal)
    expect(backend.prewrites).toHaveLength(1)
  })
})

describe('a run', () => {
  async function runOf(plan: Parameters<typeof observe>[0] = {}, ...given: ReturnType<typeof notification>[]) {
    const observed = observe(plan)
    await turns()
    observed.backend.give(...(given.length > 0 ? given : [notification('a', 10)]))
    return observed
  }

  async function endOf({ backend, observation, ended }: ReturnType<typeof observe>): Promise<void> {
    await turns()
    observation.stop()
    for (const waiting of backend.waiting.splice(0)) waiting.answer([])
    await ended
  }

  test('is one request: it begins at the fence, and knows the value', async () => {
    const seen: unknown[] = []
    const run = async (txn: Txn, [change]: readonly Change[]): Promise<void> => {
      seen.push(change, await txn.get('a'))
      await txn.put('out', 'x')
    }
    const observed = await runOf({ run })
    await endOf(observed)
    const { prewrites, calls } = observed.backend
    expect(seen).toEqual([{ key: 'a', value: 'v', commitTs: 9, kind: 'put', attempt: 1 }, 'v'])
    expect(calls).toEqual([])
    expect(prewrites).toHaveLength(1)
    expect(prewrites[0]).toMatchObject({ startTs: 10, tryOnePc: true })
    expect(prewrites[0]?.mutations.map(({ key }) => keyText(key))).toEqual(['out'])
    const acks = prewrites[0]?.commitEffects?.acks?.map(({ observer, key, fence }) => [observer, keyText(key), fence])
    expect(acks).toEqual([['words', 'a', 10]])
  })

  test('reads the value of a key that was locked at the claim', async () => {
    const values: unknown[] = []
    const { found: _found, value: _value, ...locked } = notification('a', 10)
    const observed = await runOf({ run: (_, [change]) => values.push(change?.value) }, locked)
    await endOf(observed)
    expect(values).toEqual(['later'])
    expect(observed.backend.calls).toEqual(['batchGet'])
    expect(observed.backend.prewrites[0]).toMatchObject({ startTs: 10 })
  })

  test('after a lost race begins at a new timestamp, and acknowledges the same claim', async () => {
    const values: unknown[] = []
    const observed = await runOf({ run: (_, [change]) => values.push(change?.value) })
    observed.backend.onPrewrite = async ({ startTs }) => {
      if (startTs === 10) throw conflict()
      return { onePcCommitTs: startTs + 1 }
    }
    await vi.advanceTimersByTimeAsync(100)
    await endOf(observed)
    expect(values).toEqual(['v', 'later'])
    expect(observed.backend.prewrites.map(({ startTs }) => startTs)).toEqual([10, 1000])
    for (const { commitEffects } of observed.backend.prewrites)
      expect(commitEffects?.acks).toMatchObject([{ fence: 10 }])
    expect(observed.backend.released).toEqual([])
    expect(observed.errors).toEqual([])
  })

  test('after a lost race is given back when the key has ended: it may be an expiry, which nobody has told', async () => {
    const observed = await runOf()
    observed.backend.later = undefined
    observed.backend.onPrewrite = () => Promise.reject(conflict())
    await vi.advanceTimersByTimeAsync(100)
    await endOf(observed)
    expect(observed.runs).toHaveLength(1)
    expect(observed.backend.released).toEqual([{ key: utf8('a'), fence: 10 }])
    expect(observed.errors).toEqual([])
  })

  test.each([
    { name: 'acknowledged', error: acknowledged, released: [] },
    { name: 'superseded', error: superseded, released: [] },
    { name: 'acknowledged, and changed since', error: runSince, released: [{ key: utf8('a'), fence: 10 }] },
  ])('that is refused as $name is not run again', async ({ error, released }) => {
    const observed = await runOf()
    observed.backend.onPrewrite = () => Promise.reject(error)
    await vi.advanceTimersByTimeAsync(1000)
    await endOf(observed)
    expect(observed.runs).toHaveLength(1)
    expect(observed.backend.released).toEqual(released)
    expect(observed.errors).toEqual([])
  })

  test('whose races are all lost is given back, and is no failed attempt', async () => {
    const observed = await runOf({ retries: 2 })
    observed.backend.onPrewrite = () => Promise.reject(conflict())
    await vi.advanceTimersByTimeAsync(1000)
    await endOf(observed)
    expect(observed.runs).toHaveLength(3)
    expect(observed.backend.released).toEqual([{ key: utf8('a'), fence: 10 }])
    expect(observed.errors).toHaveLength(1)
  })

  test.each([
    { name: 'the server is away', error: AWAY },
    { name: 'its outcome is unknown', error: new Undetermined(10, undefined) },
  ])('waits while $name, keeps its claim, and is run again', async ({ error }) => {
    let isAway = true
    const run = (): void => {
      if (isAway) throw error
    }
    const observed = await runOf({ run, concurrency: 1 })
    await vi.advanceTimersByTimeAsync(60_000)
    expect(observed.runs.length).toBeGreaterThan(10)
    expect(observed.runs.length).toBeLessThan(40)
    expect(observed.backend.extended).toEqual(Array(6).fill(['a']))
    isAway = false
    await vi.advanceTimersByTimeAsync(5000)
    await endOf(observed)
    expect(observed.backend.prewrites).toHaveLength(1)
    expect(observed.backend.released).toEqual([])
  })

  test('that waits is given up by a stop, without an attempt; Node does not warn of many that wait', async () => {
    const warnings: unknown[] = []
    const onWarning = (warning: unknown): void => void warnings.push(warning)
    process.on('warning', onWarning)
    const run = (): void => {
      throw AWAY
    }
    const keys = Array.from({ length: 20 }, (_, i) => `k${i}`)
    const given = keys.map((key, i) => notification(key, 10 + i))
    const observed = await runOf({ run, concurrency: 20 }, ...given)
    await endOf(observed)
    await new Promise((resolve) => setImmediate(resolve))
    process.off('warning', onWarning)
    expect(observed.backend.released).toEqual(keys.map((key, i) => ({ key: utf8(key), fence: 10 + i })))
    expect(warnings).toEqual([])
  })

  test('whose claim is lost ends as it ends, and is not run again', async () => {
    const running = held()
    const observed = await runOf({ run: () => running.done }, notification('a', 10), notification('b', 11))
    observed.backend.onExtend = async () => [{ key: utf8('a'), fence: 10 }]
    observed.backend.onPrewrite = async ({ commitEffects, startTs }) => {
      if (startTs === 10 || startTs === 11) throw conflict()
      return { onePcCommitTs: commitEffects?.acks?.[0]?.fence ?? 0 }
    }
    await vi.advanceTimersByTimeAsync(10_000)
    expect(observed.backend.extended).toEqual([['a', 'b']])
    running.end()
    await vi.advanceTimersByTimeAsync(100)
    await endOf(observed)
    const acked = observed.backend.prewrites.map(({ commitEffects }) => commitEffects?.acks?.[0]?.fence)
    expect(acked.toSorted()).toEqual([10, 11, 11])
    expect(observed.backend.released).toEqual([])
  })

  test('extensions go on after one has failed', async () => {
    const running = held()
    const observed = await runOf({ run: () => running.done })
    observed.backend.onExtend = () => Promise.reject(AWAY)
    await vi.advanceTimersByTimeAsync(30_000)
    expect(observed.backend.extended).toHaveLength(3)
    expect(observed.errors).toEqual([AWAY, AWAY, AWAY])
    running.end()
    await endOf(observed)
    expect(observed.backend.prewrites).toHaveLength(1)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(observed.backend.extended).toHaveLength(3)
  })

  test('of a key that is handed out again by a new server replaces the one before', async () => {
    const runs = [held(), held()]
    let next = 0
    const observed = await runOf({ run: () => runs[next++]?.done })
    await turns()
    observed.backend.give(notification('a', 20))
    observed.backend.onPrewrite = async ({ startTs }) => {
      if (startTs === 10) throw conflict() // To be run again, if it were not for the second claim.
      return { onePcCommitTs: startTs + 1 }
    }
    await turns()
    runs[0]?.end()
    await vi.advanceTimersByTimeAsync(10_000)
    expect(observed.backend.extended).toEqual([['a']])
    runs[1]?.end()
    await endOf(observed)
    expect(observed.backend.prewrites.map(({ startTs }) => startTs)).toEqual([10, 20])
  })

  test('of a batch is undone by a failure; the others are run one by one, and left by a stop', async () => {
    const alone = held()
    const run = async (_: Txn, changes: readonly Change[]): Promise<void> => {
      if (changes.some(({ key }) => key === 'b')) throw new Error('b is bad')
      if (changes.length === 1 && changes[0]?.key === 'c') await alone.done
    }
    const given = ['a', 'b', 'c', 'd'].map((key, i) => notification(key, 10 + i))
    const observed = await runOf({ run, batch: 10, concurrency: 1 }, ...given)
    await turns()
    expect(observed.runs).toEqual([['a', 'b', 'c', 'd'], ['a'], ['b'], ['c']])
    observed.observation.stop()
    alone.end()
    await endOf(observed)
    expect(observed.runs).toHaveLength(4)
    expect(observed.backend.prewrites.map(({ commitEffects }) => commitEffects?.acks?.length)).toEqual([1, 1])
    expect(observed.backend.released).toEqual([
      { key: utf8('b'), fence: 11, error: 'b is bad' },
      { key: utf8('d'), fence: 13 },
    ])
  })

  const nameless = Object.create(null) as object
  test.each([
    { name: 'a long message', thrown: new Error('x'.repeat(10_000_000)), error: 'x'.repeat(1024) },
    { name: 'half a surrogate pair', thrown: new Error('\ud800'), error: '\ufffd' },
    { name: 'no message', thrown: new TypeError(), error: 'TypeError' },
    { name: 'a text', thrown: 'text', error: 'text' },
    { name: 'nothing', thrown: undefined, error: 'undefined' },
    { name: 'what has no text', thrown: nameless, error: 'the run has thrown a value that has no text' },
  ])('that throws $name is released with a text', async ({ thrown, error }) => {
    const run = (): void => {
      throw thrown
    }
    const observed = await runOf({ run })
    await endOf(observed)
    expect(observed.backend.released).toEqual([{ key: utf8('a'), fence: 10, error }])
    expect(observed.errors).toEqual([thrown])
  })

  test('that does not await its calls is a failed attempt', async () => {
    const observed = await runOf({
      run: (txn) => {
        void txn.get('b').catch(() => {})
      },
    })
    await endOf(observed)
    expect(observed.backend.released).toMatchObject([{ error: expect.stringContaining('await') }])
    expect(observed.backend.prewrites).toEqual([])
  })
})

test.each([
  { name: 'a lost race', error: conflict(), verdict: 'again' },
  { name: 'an acknowledged claim', error: acknowledged, verdict: 'drop' },
  { name: 'an acknowledged claim of a newer change', error: runSince, verdict: 'release' },
  { name: 'a superseded claim', error: superseded, verdict: 'drop' },
  {
    name: 'the claim of another observer, in the function',
    error: conflict({ reason: 'superseded', observer: 'other', retryable: false }),
    verdict: 'fail',
  },
  { name: 'an unknown outcome', error: new Undetermined(1, undefined), verdict: 'wait' },
  { name: 'a server that is away', error: AWAY, verdict: 'wait' },
  {
    name: 'a claim below the safe point',
    error: new KvError('ts_below_safe_point', 'old', { safePoint: 5 }),
    verdict: 'fail',
  },
  { name: 'an error of the function', error: new Error('no'), verdict: 'fail' },
])('verdict of $name: $verdict', ({ error, verdict }) => {
  expect(verdictOf(error, 'words', (one) => one === AWAY)).toBe(verdict)
})
