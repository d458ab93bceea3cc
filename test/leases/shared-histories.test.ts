import { describe, expect, test } from 'vitest'
import type { Store } from '../../src/store/store.js'
import { type Plan, type Sharing, shareLeases } from './sharing.js'

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? (process.env['CI'] ? 40 : 25))

type Kind = Omit<Plan, 'seed'>

describe.each<Kind>([
  { faults: 0, attaches: false },
  { faults: 0.1, attaches: false },
  { faults: 0, attaches: true },
  { faults: 0.1, attaches: true },
])('leases of three servers on one table: %j', (kind) => {
  test('no commit under a fence is after the next one, and nothing of a grant is left', async () => {
    const sums = { grants: 0, commits: 0, lost: 0, attached: 0 }
    for (let seed = 1; seed <= RUNS; seed++) {
      const sharing = await shareLeases({ ...kind, seed })
      expect(sharing.violations, `seed ${seed}`).toEqual([])
      for (const count of ['grants', 'commits', 'lost', 'attached'] as const) sums[count] += sharing[count]
    }
    expect(sums.grants).toBeGreaterThan(RUNS)
    expect(sums.commits).toBeGreaterThan(2 * RUNS)
    expect(sums.lost).toBeGreaterThan(RUNS / 2)
    if (kind.attaches) expect(sums.attached).toBeGreaterThan(0)
  }, 300_000)
})

/** What the model finds in the first run in which it finds anything. */
async function firstViolations(kind: Kind): Promise<Sharing['violations']> {
  for (let seed = 1; seed <= 200; seed++) {
    const { violations } = await shareLeases({ ...kind, seed })
    if (violations.length > 0) return violations
  }
  return []
}

type Writable<T> = { -readonly [K in keyof T]: T[K] }

describe('the model finds', () => {
  test('that leases are checked before the commit_ts is taken', async () => {
    const tamper = (store: Writable<Store>): void => {
      const { prewrite, validateReads } = store
      store.prewrite = async (request, beside) => {
        const answer = await prewrite(request, beside)
        if (request.riders?.leases !== undefined) await store.leases.require(request.riders.leases)
        return answer
      }
      store.validateReads = (request) => validateReads({ ...request, leases: [] })
    }
    expect(await firstViolations({ faults: 0, attaches: false, tamper })).toContainEqual(
      expect.stringMatching(/^a commit at \d+ under \d+, after \d+ was granted$/),
    )
  }, 300_000)

  test('that the end of the term is not compared with the commit_ts', async () => {
    const tamper = (store: Store): void => {
      const { leases } = store
      const { lostAt } = leases
      leases.lostAt = (riders, ts) => lostAt.call(leases, riders, ts && 1)
    }
    expect(await firstViolations({ faults: 0, attaches: false, tamper })).toContainEqual(
      expect.stringMatching(/^a commit at \d+ under \d+, after \d+ was granted$/),
    )
  }, 300_000)
})
