import { existsSync } from 'node:fs'
import { defineConfig } from 'vitest/config'

// In memory, as the stores of the other tests: the disk is not what is tested.
if (process.env['TMPDIR'] === undefined && existsSync('/dev/shm')) process.env['TMPDIR'] = '/dev/shm'

/** `npm run test:postgres`. Apart from the other projects, because it needs a PostgreSQL that is not always there. */
export default defineConfig({
  test: {
    // The contract's long cases run on a table in memory where CI is set, and here before a release.
    tags: [{ name: 'long', description: 'Takes half a second or more on a quiet machine.' }],
    ...(process.env['PERKV_TEST_LONG'] ? {} : { tagsFilter: ['!long'] }),
    include: ['test/postgres/**/*.test.ts'],
    setupFiles: ['test/patience.ts', 'test/equal-bytes.ts'],
    expect: { poll: { timeout: 30_000, interval: 10 } },
    globalSetup: 'test/postgres/global-setup.ts',
    testTimeout: 300_000,
    hookTimeout: 300_000,
    isolate: false,
  },
})
