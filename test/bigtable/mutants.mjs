/**
 * Deliberate defects of what makes many servers on one table right, and whether the tests of clusters find each: shows
 * that they bite.
 *
 *   test/bigtable/run.sh --mutants [--seeds N] [--only REGEXP] [--texts]
 *
 * Each replaces texts of the built program, which have to be there exactly once, in a copy. A defect counts as found only
 * where the test says what is wrong with the data: a test that stands still or a server that does not start shows nothing.
 * First the program as it is has to pass with each of the seeds. Exits 1 when a defect is not found within --seeds. With
 * --texts nothing runs but the search for the texts, which a rename breaks.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const root = fileURLToPath(new URL('../../', import.meta.url))
const copy = fileURLToPath(new URL('.build/mutant/', import.meta.url))
const RUN_MS_MAX = 240_000

/** `signs` matches the messages of a test that has found wrong data. */
const TESTS = {
  timestamps: {
    file: 'cluster-timestamps',
    env: { PERKV_TEST_KILLS: '3' },
    signs: /was handed out twice|handed out \d+, after/,
  },
  snapshots: { file: 'cluster-snapshots', env: {}, signs: /the snapshot at \d+ (has changed|shows a part)/ },
  history: {
    file: 'cluster-history',
    env: { PERKV_TEST_KILLS: '1', PERKV_TEST_TXNS: '400' },
    // The bank's books are wrong, the lists have an anomaly, or the servers contradict themselves: a transaction is committed
    // that one of them had ended without a commit, or the records of a transaction exclude each other.
    signs:
      /cannot be resolved|was committed, and is lost|was aborted, and is there|the snapshot at \d+ has changed|has \S+, and -?\d+ by its|"type": "[\w-]+"|is committed at \d+ and cannot be rolled back|500 internal/,
  },
}

const NEXT_COMMIT_TS = 'const commitTs = await this.#nextCommitTs();'
const PREWRITES = 'const answers = await this.#prewriteAll(batches, kind);'

/** [what is wrong, test, text, replacement, another text, its replacement, ...] */
const MUTANTS = [
  [
    'rows are written without a condition',
    'history',
    'const isAbsent = expected.value === void 0;',
    `if (expected.family === "v") expected = { family: "v", qualifier: Buffer.from("absent"), value: void 0 };
		const isAbsent = expected.value === void 0;`,
  ],
  [
    'every server hands out ranges of its own',
    'timestamps',
    'const { last } = await this.#request({',
    `if (!(this.rangeLeft >= count)) {
			this.rangeLast = (await this.#request({ count: count + 999, floor: 0 })).last;
			this.rangeLeft = count + 999;
		}
		this.rangeLeft -= count;
		if (this.rangeLeft >= 0) return this.rangeLast - this.rangeLeft;
		const { last } = await this.#request({`,
  ],
  [
    'commit_ts is taken before the locks stand',
    'snapshots',
    PREWRITES,
    `this.earlyTs = await this.context.api.tso(1);\n${PREWRITES}`,
    NEXT_COMMIT_TS,
    NEXT_COMMIT_TS.replace('= await', '= (tries === 0 && this.earlyTs) || await'),
  ],
  [
    'a leader trusts its memory',
    'timestamps',
    'if (proof.id !== this.#id || proof.epoch !== this.#epoch) return;',
    '',
    'const proof = this.#note(await this.#read());',
    '',
  ],
]

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '3' },
    only: { type: 'string', default: '' },
    texts: { type: 'boolean', default: false },
  },
})
const seeds = Array.from({ length: Number(values.seeds) }, (_, i) => i + 1)

/** The program's files and their texts. */
const sources = readdirSync(`${root}dist`)
  .filter((name) => /^cli.*\.js$/.test(name))
  .map((name) => ({ name, source: readFileSync(`${root}dist/${name}`, 'utf8') }))

function replacementsOf([what, , ...texts]) {
  const found = []
  for (let at = 0; at < texts.length; at += 2) {
    const [text, replacement] = [texts[at], texts[at + 1]]
    const places = sources.flatMap(({ name, source }) => Array(source.split(text).length - 1).fill(name))
    if (places.length !== 1) throw new Error(`${places.length} places for "${what}": ${text}`)
    found.push({ name: places[0], text, replacement })
  }
  return found
}

/** A copy of the program with these replacements. */
function mutate(replacements) {
  rmSync(copy, { recursive: true, force: true })
  cpSync(`${root}dist`, `${copy}dist`, { recursive: true })
  cpSync(`${root}package.json`, `${copy}package.json`)
  for (const { name, text, replacement } of replacements) {
    const path = `${copy}dist/${name}`
    writeFileSync(
      path,
      readFileSync(path, 'utf8').replace(text, () => replacement),
    )
  }
}

let running
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
  process.once(signal, () => {
    if (running !== undefined) process.kill(-running.pid, 'SIGKILL')
    process.exit(128 + constants.signals[signal])
  })

/** @returns `passed`; or what the test says is wrong with the data; or that it failed for another reason. */
async function outcomeOf({ file, env, signs }, seed) {
  const args = ['vitest', 'run', '--config', 'test/bigtable/vitest.config.ts', `test/bigtable/${file}.test.ts`]
  // A group of its own, so that a run that takes too long goes with its servers.
  running = spawn('npx', args, {
    cwd: root,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...{ ...process.env, ...env, NO_COLOR: '1', PERKV_TEST_LONG: '1' },
      ...{ PERKV_TEST_SEED: String(seed), PERKV_TEST_CLI: `${copy}dist/cli.js` },
    },
  })
  let text = ''
  for (const stream of [running.stdout, running.stderr])
    stream.on('data', (chunk) => {
      text += chunk
    })
  const { pid } = running
  let isLate = false
  const timer = setTimeout(() => {
    isLate = true
    process.kill(-pid, 'SIGKILL')
  }, RUN_MS_MAX)
  const [code] = await once(running, 'close')
  clearTimeout(timer)
  running = undefined
  if (code === 0) return { kind: 'passed' }
  const sign = signs.exec(text)
  if (sign === null) return { kind: 'unclear', how: isLate ? 'it stood still' : text.slice(-3000) }
  return {
    kind: 'found',
    how: /[^\n]*$/.exec(text.slice(0, sign.index))[0] + /^[^\n]*/.exec(text.slice(sign.index))[0],
  }
}

const wanted = MUTANTS.filter(([what]) => new RegExp(values.only).test(what))
const prepared = wanted.map((mutant) => ({
  what: mutant[0],
  test: TESTS[mutant[1]],
  replacements: replacementsOf(mutant),
}))
if (values.texts) process.exit()

function fail(message) {
  console.error(message)
  process.exitCode = 1
}

/** @returns whether a test has found wrong data. */
async function isFound({ what, test }) {
  for (const seed of seeds) {
    const { kind, how } = await outcomeOf(test, seed)
    if (kind === 'found') {
      console.log(`${what}: ${test.file}, seed ${seed}: ${how.trim().slice(0, 300)}`)
      return true
    }
    console.error(`${what}: ${test.file}, seed ${seed}: ${kind}${how === undefined ? '' : `\n${how}`}`)
  }
  return false
}

mutate([])
for (const test of new Set(prepared.map((mutant) => mutant.test)))
  for (const seed of seeds) {
    const { kind, how } = await outcomeOf(test, seed)
    if (kind === 'passed') console.log(`as it is: ${test.file}, seed ${seed}: passed`)
    else fail(`as it is: ${test.file}, seed ${seed}: ${kind}\n${how}`)
  }
for (const mutant of prepared) {
  mutate(mutant.replacements)
  if (!(await isFound(mutant))) fail(`${mutant.what}: not found`)
}
rmSync(copy, { recursive: true, force: true })
