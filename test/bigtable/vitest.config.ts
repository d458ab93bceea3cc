import { defineConfig } from 'vitest/config'

/** `npm run test:bigtable`. Apart from the other projects, because it needs an emulator and a package that are not always there. */
export default defineConfig({
  test: {
    tags: [{ name: 'long', description: 'See vitest.config.ts of the whole.' }],
    include: ['test/bigtable/**/*.test.ts'],
    globalSetup: 'test/bigtable/emulator/global-setup.ts',
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Loading Google's client for each file takes longer than most tests.
    isolate: false,
  },
})
