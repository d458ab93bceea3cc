import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isKvError } from '../../src/errors/kv-error.js'
import type { LeaseState } from '../../src/leases/rules/leases-api.js'
import type { Timestamp } from '../../src/timestamp.js'
import { testStores, turn } from '../store/support.js'
import { Leasing, TwoClocks } from './support.js'

const stores = testStores()
const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 30)

/** Added to each term by a restart. */
const RESTART_MS = 2000

type Step =
  | {
      readonly do: 'put'
      readonly name: string
      readonly holder: string
      readonly ttlMs: number
      readonly fenced: boolean
    }
  | {
      readonly do: 'wait'
      readonly name: string
      readonly holder: string
      readonly ttlMs: number
      readonly waitMs: number
    }
  | { readonly do: 'release'; readonly name: string; readonly holder: string }
  | { readonly do: 'commit'; readonly name: string; readonly holder: string }
  | { readonly do: 'pass' | 'step'; readonly ms: number }
  | { readonly do: 'restart' }

const name = fc.constantFrom('a', 'b')
const holder = fc.constantFrom('x', 'y', 'z')
const ttlMs = fc.constantFrom(100, 1000, 1001, 60_000)
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant('put' as const), name, holder, ttlMs, fenced: fc.boolean() }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('wait' as const),
      name,
      holder,
      ttlMs,
      waitMs: fc.constantFrom(1, 999, 60_000),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('release' as const), name, holder }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('commit' as const), name, holder }) },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('pass' as const),
      ms: fc.constantFrom(1, 99, 100, 500, 999, 1000, 2000, 5000),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('step' as const), ms: fc.constantFrom(-7_200_000, -900, 900, 3_600_000) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
)

/** What is known of a lease. Between `livesUntilMs` and `endsByMs` it may be held or not. */
interface Known {
  readonly holder: string
  readonly fence: Timestamp
  readonly ttlMs: number
  readonly livesUntilMs: number
  readonly endsByMs: number
}

/** The promises of leases, without a clock that is set, a disk or a queue. */
class Model {
  readonly #known = new Map<string, Known>()
  /** Newest fence and newest commit per name. */
  readonly #newest = new Map<string, { fence: Timestamp; commitTs: Timestamp }>()
  /** The last fence that each holder was told of. */
  readonly #told = new Map<string, Timestamp>()

  constructor(readonly clocks: TwoClocks) {}

  lives(name: string): Known | undefined {
    const known = this.#known.get(name)
    return known !== undefined && this.clocks.elapsedMs < known.livesUntilMs ? known : undefined
  }
  mayLive(name: string, atMs = this.clocks.elapsedMs): Known | undefined {
    const known = this.#known.get(name)
    return known !== undefined && atMs < known.endsByMs ? known : undefined
  }
  told(name: string, holder: string): Timestamp | undefined {
    return this.#told.get(`${name} ${holder}`)
  }

  answered({ name, holder, fence, ttlMs }: LeaseState): void {
    const { elapsedMs } = this.clocks
    const newest = this.#newest.get(name) ?? { fence: 0, commitTs: 0 }
    const isRenewal = fence === newest.fence
    const [lives, mayLive] = [this.lives(name), this.mayLive(name)]
    if (isRenewal) expect(mayLive, `${name} was renewed`).toMatchObject({ holder, fence })
    else {
      expect(lives, `${name} was granted to ${holder}`).toBeUndefined()
      // All commits under earlier fences are below this one.
      expect(fence).toBeGreaterThan(newest.fence)
      expect(fence).toBeGreaterThan(newest.commitTs)
      this.#newest.set(name, { fence, commitTs: fence })
    }
    this.#told.set(`${name} ${holder}`, fence)
    const until = elapsedMs + ttlMs
    // Renewed with its TTL, it may keep what a restart has added.
    const endsByMs = isRenewal && mayLive?.ttlMs === ttlMs ? Math.max(until, mayLive.endsByMs) : until
    this.#known.set(name, { holder, fence, ttlMs, livesUntilMs: until, endsByMs })
  }

  released(name: string): void {
    this.#known.delete(name)
  }

  committed(name: string, fence: Timestamp, commitTs: Timestamp): void {
    expect(this.mayLive(name), `a commit under ${name} ${fence}`).toMatchObject({ fence })
    expect(commitTs).toBeGreaterThan(fence)
    this.#newest.set(name, { fence, commitTs })
  }

  restarted(): void {
    const { elapsedMs } = this.clocks
    for (const [name, known] of this.#known) {
      const endsByMs = elapsedMs + known.ttlMs + RESTART_MS
      // One that had run out may live again, if its record was not removed yet.
      const livesUntilMs = elapsedMs < known.livesUntilMs ? elapsedMs + known.ttlMs : known.livesUntilMs
      this.#known.set(name, { ...known, livesUntilMs, endsByMs })
    }
  }
}

test('what holders are told is what transactions are checked by, over restarts and clocks that are set', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 60 }), async (steps) => {
      const clocks = new TwoClocks()
      const { now, monotonicNow } = clocks
      const store = await stores.open({ now, monotonicNow })
      const leasing = await Leasing.open(store, clocks)
      const model = new Model(clocks)
      const waiting = new Set<Promise<void>>()
      /** Everything that can go on without more time has done so. */
      const settle = async (): Promise<void> => {
        do for (let i = 0; i < 10; i++) await turn()
        while (waiting.size !== leasing.leases.summary().waiting || store.figures.writeQueue.batches > 0)
      }
      for (const step of steps) {
        if (step.do === 'pass') leasing.pass(step.ms)
        else if (step.do === 'step') clocks.step(step.ms)
        else if (step.do === 'restart') {
          await leasing.restart()
          await Promise.all(waiting)
          model.restarted()
        } else if (step.do === 'put') {
          const fence = step.fenced ? model.told(step.name, step.holder) : undefined
          try {
            model.answered(await leasing.put(step.name, step.holder, { ttlMs: step.ttlMs, ...(fence && { fence }) }))
          } catch (error) {
            const known = model.mayLive(step.name)
            if (isKvError(error, 'lease_held')) expect(known?.holder).not.toBe(step.holder)
            else if (isKvError(error, 'precondition_failed')) expect(model.lives(step.name)?.fence).not.toBe(fence)
            else throw error
            if (isKvError(error, 'lease_held')) expect(known).toBeDefined()
          }
        } else if (step.do === 'wait') {
          const { name, holder, ttlMs, waitMs } = step
          const endsAtMs = clocks.elapsedMs + waitMs
          const asked: Promise<void> = leasing
            .put(name, holder, { ttlMs, waitMs })
            .then((state) => model.answered(state))
            .catch((error) => {
              if (isKvError(error, 'overloaded')) return // A restart.
              if (!isKvError(error, 'lease_held')) throw error
              // One step of the clock may have passed the end of the wait and then that of the lease.
              expect(model.mayLive(name, Math.min(endsAtMs, clocks.elapsedMs))).toBeDefined()
            })
            .finally(() => waiting.delete(asked))
          waiting.add(asked)
        } else if (step.do === 'release') {
          const known = model.lives(step.name)
          try {
            await leasing.leases.remove(step.name, step.holder)
            expect(known?.holder ?? step.holder).toBe(step.holder)
            const may = model.mayLive(step.name)
            if (may === undefined || may.holder === step.holder) model.released(step.name)
          } catch (error) {
            if (!isKvError(error, 'precondition_failed')) throw error
            expect(model.mayLive(step.name)?.holder).not.toBe(step.holder)
            expect(model.mayLive(step.name)).toBeDefined()
          }
        } else if (step.do === 'commit') {
          const fence = model.told(step.name, step.holder)
          if (fence === undefined) continue
          const mustPass = model.lives(step.name)?.fence === fence
          try {
            model.committed(step.name, fence, await leasing.commit(step.name, fence))
          } catch (error) {
            if (!isKvError(error, 'precondition_failed')) throw error
            expect(mustPass, 'a commit under a lease that lives').toBe(false)
          }
        }
        await settle()
      }
      await leasing.leases.close()
      await Promise.all(waiting)
      expect(leasing.errors).toEqual([])
    }),
    { numRuns: RUNS },
  )
})
