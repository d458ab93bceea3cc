import { expect, test } from 'vitest'
import { simulate } from './world.js'

/** Where seeds begin. Many more: npm run sim:long. */
const FIRST_SEED = Number(process.env['PERKV_TEST_SEED'] ?? 1)
const STEPS = 1000

test.each(['leveldb', 'shared'] as const)(
  'what a seed says happens again, exactly, on %s',
  { tags: ['long'] },
  async (store) => {
    const { hash, counts } = await simulate({ seed: FIRST_SEED, steps: STEPS, store })
    expect(await simulate({ seed: FIRST_SEED, steps: STEPS, store })).toMatchObject({ hash, counts })
    expect((await simulate({ seed: FIRST_SEED + 1, steps: STEPS, store })).hash).not.toBe(hash)
  },
)

test.each([
  { store: 'leveldb', seeds: 5, share: 0.1 },
  { store: 'shared', seeds: 3, share: 0.015 },
] as const)(
  'on $store, whatever fails, transactions and runs are what they promise',
  { tags: ['long'] },
  async ({ store, seeds, share }) => {
    const counts: Record<string, number> = {}
    for (let seed = FIRST_SEED; seed < FIRST_SEED + seeds; seed++) {
      const outcome = await simulate({ seed, steps: STEPS, store })
      for (const [name, count] of Object.entries(outcome.counts)) counts[name] = (counts[name] ?? 0) + count
      expect(outcome.violations, `npm run sim -- --seed ${seed} --steps ${STEPS} --store ${store}`).toEqual([])
    }
    // A world in which nothing is committed promises little.
    expect(counts['txn optimistic committed']).toBeGreaterThan(70 * share)
    expect(counts['txn pessimistic committed']).toBeGreaterThan(50 * share)
    expect(counts['txn one_shot committed']).toBeGreaterThan(50 * share)
    expect(counts['runs']).toBeGreaterThan(50 * share)
    expect(counts['grants']).toBeGreaterThan(20 * share)
  },
)
