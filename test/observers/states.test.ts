import { expect, test } from 'vitest'
import type { Observers } from '../../src/observers/observers.js'
import type { Notification, Release } from '../../src/observers/rules/observers-api.js'
import type { CompleteStore } from '../../src/store/store.js'
import { TestClock, testStores, utf8 } from '../store/support.js'
import { openObservers, prefix, putNow, runNow } from './support.js'

const stores = testStores()
const key = utf8('doc/1')
const BACKOFF_MS = 100
const LEASE_MS = 1000

/** One cell of an observer that parks after two failed runs. */
class OneCell {
  readonly #clock: TestClock
  readonly #store: CompleteStore
  #observers: Observers
  #claim: Notification | undefined

  private constructor(clock: TestClock, store: CompleteStore, observers: Observers) {
    this.#clock = clock
    this.#store = store
    this.#observers = observers
  }

  static async open(): Promise<OneCell> {
    const clock = new TestClock()
    const store = await stores.open({ now: clock.now })
    const observers = await openObservers(store, { random: () => 0.5 })
    await observers.put('words', { ...prefix('doc/'), maxAttempts: 2, backoffMs: BACKOFF_MS })
    return new OneCell(clock, store, observers)
  }

  async state(): Promise<string> {
    const { pending, pendingIsExact, claimed, delayed, parked } = await this.#observers.get('words')
    if (!pendingIsExact || pending + parked > 1) throw new Error(`${pending} pending, ${parked} parked`)
    if (claimed + delayed + parked === 1) return claimed === 1 ? 'claimed' : delayed === 1 ? 'delayed' : 'parked'
    return pending === 1 ? 'ready' : 'clean'
  }

  /** The attempt of the next claim; 0: there is nothing to claim. */
  async nextAttempt(): Promise<number> {
    return (await this.claim())?.attempt ?? 0
  }

  async claim(): Promise<Notification | undefined> {
    const [claim] = await this.#observers.claim('words', { worker: 'w', leaseMs: LEASE_MS })
    this.#claim = claim ?? this.#claim
    return claim
  }

  mark = (): Promise<unknown> => putNow(this.#store, 'doc/1')
  retry = (): Promise<unknown> => this.#observers.retry('words')
  skip = (): Promise<unknown> => this.#observers.skip('words', [key])

  async acknowledge(): Promise<void> {
    if (this.#claim !== undefined) await runNow(this.#store, 'words', this.#claim)
  }

  async release(failed: Partial<Release> = {}): Promise<void> {
    if (this.#claim !== undefined) await this.#observers.release('words', [{ ...this.#claim, ...failed }])
  }

  fail = (): Promise<void> => this.release({ error: 'no' })

  async pass(ms: number): Promise<void> {
    this.#clock.ms += ms
    await this.#store.tso(1)
  }

  async endLease(): Promise<void> {
    await this.pass(LEASE_MS)
    expect(await this.claim()).toBeUndefined()
    await expect.poll(() => this.state()).not.toBe('claimed')
  }

  async restart(): Promise<void> {
    await this.#observers.close()
    this.#observers = await openObservers(this.#store, { random: () => 0.5 })
    await this.#observers.claim('words', { worker: 'w', limit: 1, leaseMs: LEASE_MS }).then(async ([claim]) => {
      if (claim !== undefined) await this.#observers.release('words', [claim])
    })
  }
}

const enter: Record<string, (cell: OneCell) => Promise<unknown>> = {
  clean: async () => {},
  ready: (cell) => cell.mark(),
  claimed: async (cell) => {
    await cell.mark()
    await cell.claim()
  },
  delayed: async (cell) => {
    await enter['claimed']?.(cell)
    await cell.fail()
  },
  'claimed again': async (cell) => {
    await enter['delayed']?.(cell)
    await cell.pass(BACKOFF_MS)
    await cell.claim()
  },
  parked: async (cell) => {
    await enter['claimed again']?.(cell)
    await cell.fail()
  },
}

const events: Record<string, (cell: OneCell) => Promise<unknown>> = {
  mark: (cell) => cell.mark(),
  claim: (cell) => cell.claim(),
  'its run commits': (cell) => cell.acknowledge(),
  'mark, and its run commits': async (cell) => {
    await cell.mark()
    await cell.acknowledge()
  },
  release: (cell) => cell.release(),
  'release for later': (cell) => cell.release({ retryAfterMs: BACKOFF_MS }),
  'release with an error': (cell) => cell.fail(),
  'mark, and release with an error': async (cell) => {
    await cell.mark()
    await cell.fail()
  },
  'end of the lease': (cell) => cell.endLease(),
  'its time': (cell) => cell.pass(BACKOFF_MS),
  'nearly its time': (cell) => cell.pass(BACKOFF_MS - 1),
  retry: (cell) => cell.retry(),
  skip: (cell) => cell.skip(),
  'mark, and failure': async (cell) => {
    await cell.mark()
    await cell.claim()
    await cell.fail()
  },
  restart: (cell) => cell.restart(),
}

/** `attempt`: of the claim that comes next; 0: none does. */
test.each([
  ['clean', 'mark', 'ready', 1],
  ['ready', 'claim', 'claimed', 0],
  ['claimed', 'its run commits', 'clean', 0],
  ['claimed', 'mark, and its run commits', 'ready', 1],
  ['claimed', 'release', 'ready', 1],
  ['claimed', 'release for later', 'delayed', 0],
  ['claimed', 'release with an error', 'delayed', 0],
  ['claimed', 'end of the lease', 'delayed', 0],
  ['claimed again', 'its run commits', 'clean', 0],
  ['claimed again', 'mark, and its run commits', 'ready', 1],
  ['claimed again', 'release', 'ready', 2],
  ['claimed again', 'release with an error', 'parked', 0],
  ['claimed again', 'mark, and release with an error', 'parked', 0],
  ['claimed again', 'end of the lease', 'parked', 0],
  ['ready', 'mark', 'ready', 1],
  ['claimed', 'mark', 'claimed', 0],
  ['delayed', 'mark', 'delayed', 0],
  ['delayed', 'nearly its time', 'delayed', 0],
  ['delayed', 'its time', 'ready', 2],
  ['parked', 'mark', 'ready', 3],
  ['parked', 'mark, and failure', 'parked', 0],
  ['parked', 'retry', 'ready', 1],
  ['parked', 'skip', 'clean', 0],
  ['ready', 'retry', 'ready', 1],
  ['delayed', 'retry', 'delayed', 0],
  ['delayed', 'skip', 'delayed', 0],
  ['clean', 'restart', 'clean', 0],
  ['ready', 'restart', 'ready', 1],
  ['claimed', 'restart', 'ready', 1],
  ['claimed again', 'restart', 'ready', 2],
  ['delayed', 'restart', 'delayed', 0],
  ['parked', 'restart', 'parked', 0],
] as const)('%s, %s: %s, and the next claim is attempt %i', async (state, event, next, attempt) => {
  const cell = await OneCell.open()
  await enter[state]?.(cell)
  expect(await cell.state()).toBe(state.replace(' again', ''))
  await events[event]?.(cell)
  if (event === 'its time') await cell.nextAttempt().then(() => cell.release())
  expect(await cell.state()).toBe(next)
  expect(await cell.nextAttempt()).toBe(attempt)
})
