import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // On two cores vitest would run one file at a time; much of the time is fsyncs.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    // The files of a worker share what they import: loading it anew for each would be a third of the time. So whatever a
    // test changes of the process it puts back; spies end with their test.
    isolate: false,
    restoreMocks: true,
  },
})
