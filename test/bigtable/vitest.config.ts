import { defineConfig } from 'vitest/config'

/** `npm run test:bigtable`. Apart from the other projects, because it needs an emulator and a package that are not always there. */
export default defineConfig({
  test: {
    // The contract's long cases run on a table in memory where CI is set, and here before a release.
    tags: [{ name: 'long', description: 'Takes half a second or more on a quiet machine.' }],
    ...(process.env['PERKV_TEST_LONG'] ? {} : { tagsFilter: ['!long'] }),
    include: ['test/bigtable/**/*.test.ts'],
    setupFiles: ['test/patience.ts', 'test/equal-bytes.ts'],
    expect: { poll: { timeout: 30_000, interval: 10 } },
    globalSetup: 'test/bigtable/emulator/global-setup.ts',
    // Servers of their own for each test: on a busy machine their start takes a minute.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    // Loading Google's client for each file takes longer than most tests.
    isolate: false,
  },
})
