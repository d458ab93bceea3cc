import { availableParallelism } from 'node:os'
import { configDefaults, defineConfig } from 'vitest/config'

/** Whole programs, conversions and repairs, and suites that run again on another store: where CI is set (`npm run test:all`). */
const LONG = [
  'test/anomalies/**',
  'test/examples/**',
  'test/process/**',
  'test/store/leveldb/directory/move-system-records.test.ts',
  'test/store/leveldb/repair/repair.test.ts',
  'test/txn/two-phases.test.ts',
]

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: process.env['CI'] ? configDefaults.exclude : [...configDefaults.exclude, ...LONG],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // On two cores vitest would run one file at a time; much of the time is fsyncs.
    maxWorkers: Math.max(2, availableParallelism() - 1),
  },
})
