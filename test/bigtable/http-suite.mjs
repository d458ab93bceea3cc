/**
 * The tests above the stores, on a shared store.
 *
 *   npm run test:bigtable:http -- [--listed] [--times] [--emulator|--postgres] [files...]
 *
 * The table is in memory; with --emulator it is one of the emulator, which test/bigtable/run.sh prepares, and with --postgres one of
 * PostgreSQL. Tests that need what this store lacks are on the list in not-on-bigtable.json, by reason, and are skipped. Exits 1 when
 * another test fails, or when the list names a file or a test that is not there. With --listed the tests of the list run too, and
 * those that pass are printed, which can be taken off it. With --times the slowest files are printed.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { parseArgs } from 'node:util'
import { PostgresServer } from '../postgres/server.mjs'
import { startEmulator } from './emulator/emulator.mjs'
import { isNamed, NOT_ON_BIGTABLE, reasonOf } from './not-on-bigtable.mjs'

/** Of the client what stands above all stores: transactions, and its own rules for them. */
const CLIENT = ['db', 'db-transaction', 'deadline', 'delete-range', 'regressions'].map(
  (name) => `test/client/${name}.test.ts`,
)
/** What no store can change: bytes, documents, framing and admission stand before the first call of a store. */
const WITHOUT_STORE = [
  'test/http/{admission,connections,fast-lane,openapi,wire}/**',
  'test/http/routes/console.test.ts',
  'test/http/{answer-memory,bodies,fuzz,given-back,hostile,log-secrets,misspelt,newline,pipelining,request-head,too-large}.test.ts',
]
const TESTS = ['test/http', 'test/database', 'test/txn', ...CLIENT]
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    listed: { type: 'boolean' },
    times: { type: 'boolean' },
    emulator: { type: 'boolean' },
    postgres: { type: 'boolean' },
  },
})
const filters = positionals.length > 0 ? positionals : TESTS

/** @returns for each file its tests, or why it did not run; and what vitest said of all. */
async function run() {
  const emulator = values.emulator ? await startEmulator() : undefined
  const postgres = values.postgres ? await PostgresServer.start() : undefined
  const directory = mkdtempSync(join(tmpdir(), 'perkv-suite-'))
  const file = join(directory, 'report.json')
  const env = {
    ...process.env,
    PERKV_TEST_STORE: 'bigtable',
    // Files that are named are run.
    ...(positionals.length === 0 && { PERKV_TEST_WITHOUT: WITHOUT_STORE.join(' ') }),
    ...(values.listed && { PERKV_TEST_LISTED: 'run' }),
    ...(emulator && { BIGTABLE_EMULATOR_HOST: emulator.host }),
    ...(postgres && { PERKV_TEST_POSTGRES: postgres.url() }),
  }
  try {
    // Tests of the list that wait for what never comes need not wait long.
    const timeoutMs = values.listed ? 20_000 : 120_000
    const args = [
      'vitest',
      'run',
      `--test-timeout=${timeoutMs}`,
      '--reporter=dot',
      '--reporter=json',
      `--outputFile=${file}`,
      ...filters,
    ]
    const [exitCode] = await once(spawn('npx', args, { env, stdio: ['ignore', 'inherit', 'inherit'] }), 'exit')
    if (!existsSync(file)) throw new Error('vitest has written no report')
    const files = JSON.parse(readFileSync(file, 'utf8')).testResults.map(
      ({ name, message, status, startTime, endTime, assertionResults }) => ({
        file: relative(process.cwd(), name),
        ms: endTime - startTime,
        broken:
          status === 'failed' && assertionResults.every(({ status }) => status !== 'failed') ? message : undefined,
        tests: assertionResults.map(({ ancestorTitles, title, status, failureMessages }) => ({
          name: [...ancestorTitles, title].join(' > '),
          status,
          failure: failureMessages?.[0]?.split('\n')[0] ?? '',
        })),
      }),
    )
    return { files, exitCode }
  } finally {
    rmSync(directory, { recursive: true, force: true })
    await emulator?.stop()
    await postgres?.end()
  }
}

/** What the list names of a file: complaints about names of nothing, and, if listed tests ran, notes on those that pass. */
function* lookedThrough(file, reason, entries, tests) {
  for (const entry of entries === 'all' ? [undefined] : entries) {
    const meant = tests.filter(({ name }) => entry === undefined || isNamed(name, entry))
    const passed = meant.filter(({ status }) => status === 'passed')
    const what = entry ?? 'all of it'
    if (meant.length === 0) yield { complaint: `the list names what is not in ${file}: ${what}` }
    else if (passed.length === meant.length)
      yield { note: `passes, and can come off the list: ${file}: ${what} (${reason})` }
    else if (passed.length > 0) {
      yield { note: `${passed.length} of ${meant.length} pass: ${file}: ${what} (${reason})` }
    }
  }
}

const beganMs = performance.now()
const { files, exitCode } = await run()
const counts = {}
const complaints = []
const notes = []
for (const { file, broken, tests } of files) {
  for (const { name, status, failure } of tests) {
    const isListed = reasonOf(file, name) !== undefined
    const kind = isListed && values.listed ? `listed and ${status}` : isListed ? 'listed' : status
    counts[kind] = (counts[kind] ?? 0) + 1
    if (status === 'failed' && !isListed) complaints.push(`${file}: ${name}: ${failure}`)
  }
  const isAllListed = Object.values(NOT_ON_BIGTABLE).some((listed) => listed[file] === 'all')
  if (broken !== undefined && !isAllListed) complaints.push(`${file} did not run: ${broken}`)
}
for (const [reason, listed] of Object.entries(NOT_ON_BIGTABLE))
  for (const [file, entries] of Object.entries(listed)) {
    const tests = files.find((one) => one.file === file)?.tests
    if (!existsSync(file)) complaints.push(`the list names ${file}, which is not there`)
    // A file without tests could not even be prepared.
    if (tests === undefined || tests.length === 0) continue
    for (const { complaint, note } of lookedThrough(file, reason, entries, tests)) {
      if (complaint !== undefined) complaints.push(complaint)
      if (note !== undefined) notes.push(note)
    }
  }
// Tests of the list fail when they run.
if (exitCode !== 0 && complaints.length === 0 && !values.listed)
  complaints.push(`vitest has ended with ${exitCode}, for errors outside of tests: see above`)
if (values.times)
  for (const { file, ms } of files.toSorted((a, b) => b.ms - a.ms).slice(0, 15)) console.log(Math.round(ms), file)
for (const line of [...notes, ...complaints]) console.log(line)
const total = Object.entries(counts).map(([kind, count]) => `${count} ${kind}`)
console.log(`${total.join(', ')} in ${Math.round((performance.now() - beganMs) / 1000)} s`)
process.exit(complaints.length === 0 ? 0 : 1)
