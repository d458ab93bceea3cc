import { existsSync, readdirSync, readFileSync, statfsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { configDefaults, defineConfig } from 'vitest/config'
import { filesLeftOut } from './test/bigtable/not-on-bigtable.mjs'

/** Whole programs and browsers, of which the tests leave nothing in their own process. */
const PROGRAMS = [
  'test/console/**/*.test.ts',
  'test/docs/console.test.ts',
  'test/examples/*.test.ts',
  'test/process/**/*.test.ts',
]

/** Bad networks and disks, random histories, measured turns, conversions and repairs, measured memory, and suites that run again on another store: where CI is set (`npm run test:all`). */
const LARGE = [
  'test/anomalies/**/*.test.ts',
  'test/changes/*histories.test.ts',
  'test/client/browser.test.ts', // The only files that need a build are these of CI.
  'test/client/http/senders.test.ts',
  'test/client/leases/bad-network.test.ts',
  'test/commands/client/foreign-servers.test.ts',
  'test/commands/flag-values.test.ts',
  'test/http/answer-memory.test.ts',
  'test/http/fast-lane/fuzz.test.ts',
  'test/http/given-back.test.ts',
  'test/http/large-transactions.test.ts',
  'test/http/log-secrets.test.ts',
  'test/http/metrics/promtool.test.ts',
  'test/http/slow-feeds.test.ts',
  'test/http/turn-lengths.test.ts',
  'test/leases/*histories.test.ts',
  'test/level/over-http.test.ts',
  'test/observers/failing-disk.test.ts',
  'test/store/table/collection-histories.test.ts',
  'test/store/table/same-rows.test.ts',
  'test/store/table/several-stores.test.ts',
  'test/store/leveldb/directory/move-system-records.test.ts',
  'test/store/leveldb/directory/newest-records.test.ts',
  'test/store/leveldb/integrity/flipped-bytes.test.ts',
  'test/store/leveldb/repair/repair.test.ts',
  'test/store/snapshot-isolation.test.ts',
  'test/txn/two-phases.test.ts',
]
const LONG = [...PROGRAMS, ...LARGE]

const TESTS = readdirSync('test', { withFileTypes: true })
  // What the simulation has compiled comes and goes.
  .filter((entry) => entry.isDirectory() && entry.name !== 'simulation')
  .flatMap(({ name }) =>
    readdirSync(`test/${name}`, { recursive: true, encoding: 'utf8' }).map((path) => `test/${name}/${path}`),
  )
  .filter((path) => path.endsWith('.test.ts'))
const filesWith = (text: RegExp) => TESTS.filter((path) => text.test(readFileSync(path, 'utf8')))

/** Files that replace timers and functions, which servers of other tests would notice. */
const REPLACING = filesWith(/\bvi\.(?:useFakeTimers|spyOn)\(/)

/**
 * Files that have a process of their own: they replace modules, measure memory or turns of the event loop, repeat all that
 * happens, or have a clock that leaps, which a poll that somebody forgot would make go by its few milliseconds.
 */
const ALONE = [
  ...filesWith(/\bvi\.mock\(|several-databases\.js'/),
  'test/http/answer-memory.test.ts',
  'test/http/readers-stall-nobody.test.ts',
  'test/http/slow-feeds.test.ts',
  'test/http/turn-lengths.test.ts',
  'test/keyv/keyv-suite.test.ts',
  'test/process/unreachable.test.ts', // It spies, and would be among whole programs.
  'test/simulation/simulation.test.ts',
]
/** `npm run test:bigtable` and `npm run test:postgres` have configurations of their own. */
const ELSEWHERE = ['test/bigtable/**', 'test/postgres/**']
const IS_LONG = Boolean(process.env['CI'])
const IS_ON_BIGTABLE = process.env['PERKV_TEST_STORE'] === 'bigtable'
const SKIPPED = [
  ...configDefaults.exclude,
  ...ELSEWHERE,
  ...(IS_LONG ? [] : LONG),
  ...(IS_ON_BIGTABLE ? filesLeftOut() : []),
  // vitest's own --exclude does not reach the projects below.
  ...(process.env['PERKV_TEST_WITHOUT'] ?? '').split(' ').filter((path) => path !== ''),
]

// Where there is room in memory, the stores of tests are made there: on a disk each takes four times as long.
const MEMORY = '/dev/shm'
const ROOM = 4 * 2 ** 30
if (process.env['TMPDIR'] === undefined && existsSync(MEMORY)) {
  const { bavail, bsize } = statfsSync(MEMORY)
  if (bavail * bsize >= ROOM) process.env['TMPDIR'] = MEMORY
}

export default defineConfig({
  test: {
    // A test that takes half a second runs where CI is set.
    tags: [{ name: 'long', description: 'Takes half a second or more on a quiet machine.' }],
    ...(IS_LONG ? {} : { tagsFilter: ['!long'], reporters: ['default', './test/slow-tests.ts'] }),
    // What was transformed is kept in node_modules for the next run, and for the other processes of this one.
    experimental: { fsModuleCache: true },
    testTimeout: 60_000,
    hookTimeout: 60_000,
    setupFiles: [
      'test/patience.ts',
      'test/equal-bytes.ts',
      ...(IS_ON_BIGTABLE ? ['test/bigtable/skip-listed.ts'] : []),
    ],
    expect: { poll: { timeout: 30_000, interval: 10 } },
    // Tests wait for a clock, a socket or a program much of their time.
    maxWorkers: availableParallelism() + 1,
    projects: [
      {
        extends: true,
        test: {
          name: 'together',
          include: ['test/**/*.test.ts'],
          exclude: [...SKIPPED, ...PROGRAMS, ...REPLACING, ...ALONE],
          // Starting a process and loading the server for each file were a third of the processor time.
          isolate: false,
        },
      },
      {
        extends: true,
        test: { name: 'replacing', include: REPLACING, exclude: [...SKIPPED, ...ALONE], isolate: false },
      },
      {
        extends: true,
        test: {
          name: 'programs',
          include: PROGRAMS,
          exclude: [...SKIPPED, ...ALONE],
          isolate: false,
          // On a busy machine a program starts in seconds.
          testTimeout: 300_000,
        },
      },
      { extends: true, test: { name: 'alone', include: ALONE, exclude: SKIPPED } },
    ],
  },
})
