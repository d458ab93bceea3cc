import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // On two cores vitest would run one file at a time; much of the time is fsyncs.
    maxWorkers: Math.max(2, availableParallelism() - 1),
  },
})
