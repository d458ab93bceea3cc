import { expect, test } from 'vitest'
import { simulate } from './world.js'

/** Where seeds begin. Many more: npm run sim:long. */
const FIRST_SEED = Number(process.env['PERKV_TEST_SEED'] ?? 1)
const SEEDS = 20
const STEPS = 1000

test('what a seed says happens again, exactly', { tags: ['long'] }, async () => {
  const { hash, counts } = await simulate({ seed: FIRST_SEED, steps: STEPS })
  expect(await simulate({ seed: FIRST_SEED, steps: STEPS })).toMatchObject({ hash, counts })
  expect((await simulate({ seed: FIRST_SEED + 1, steps: STEPS })).hash).not.toBe(hash)
})

test.each(['leveldb', 'memory'] as const)(
  'on %s, whatever fails, transactions and runs are what they promise',
  { tags: ['long'] },
  async (store) => {
    const counts: Record<string, number> = {}
    for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed++) {
      const outcome = await simulate({ seed, steps: STEPS, store })
      for (const [name, count] of Object.entries(outcome.counts)) counts[name] = (counts[name] ?? 0) + count
      expect(outcome.violations, `npm run sim -- --seed ${seed} --steps ${STEPS} --store ${store}`).toEqual([])
    }
    // A world in which nothing is committed promises little.
    expect(counts['txn optimistic committed']).toBeGreaterThan(100)
    expect(counts['txn pessimistic committed']).toBeGreaterThan(50)
    expect(counts['txn one_shot committed']).toBeGreaterThan(50)
    expect(counts['runs']).toBeGreaterThan(50)
    expect(counts['grants']).toBeGreaterThan(20)
  },
)
