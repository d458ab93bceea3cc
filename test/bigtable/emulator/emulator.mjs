import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, rename, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const SOURCE = fileURLToPath(new URL('.', import.meta.url))
const BUILD = fileURLToPath(new URL('../.build/', import.meta.url))
const PROGRAM = join(BUILD, 'emulator')
/** Where Debian's golang-google-cloud-dev puts the sources of its Go packages. */
const GO_SOURCES = '/usr/share/gocode'

/**
 * @typedef {object} EmulatorOptions
 * @property {number} [delayMs] Before every call.
 * @property {number} [failBefore] Share of the calls that are not done and answered UNAVAILABLE.
 * @property {number} [failAfter] Share that is done and answered UNAVAILABLE. Streams break off somewhere.
 * @property {number} [late] Share of the changes that are answered DEADLINE_EXCEEDED and done 200 ms later.
 * @property {number} [rowDelayMs] For every row that a read passes, whether the row is sent or not.
 * @property {number} [progressMs] A read that sends no row for so long says how far it has come; 0: never. Default 1000.
 * @property {boolean} [refuseChanges] Conditional changes are refused, as with an app profile that routes to any cluster.
 */

/**
 * @typedef {object} Emulator
 * @property {string} host For BIGTABLE_EMULATOR_HOST.
 * @property {() => Promise<void>} stop
 */

/**
 * Google's Bigtable server in memory, empty.
 * @param {EmulatorOptions} [options]
 * @returns {Promise<Emulator>}
 * @throws Error where it can't be built
 */
export async function startEmulator(options = {}) {
  await buildEmulator()
  const { delayMs = 0, rowDelayMs = 0, progressMs = 1000 } = options
  const { failBefore = 0, failAfter = 0, late = 0, refuseChanges = false } = options
  const times = [`--delay=${delayMs}ms`, `--row-delay=${rowDelayMs}ms`, `--progress=${progressMs}ms`]
  const faults = [
    `--fail-before=${failBefore}`,
    `--fail-after=${failAfter}`,
    `--late=${late}`,
    `--refuse-changes=${refuseChanges}`,
  ]
  // Its input ends with this process, however that ends.
  const child = spawn(PROGRAM, ['--stdin', ...times, ...faults], { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = once(child, 'close')
  const lines = createInterface({ input: child.stdout })
  const first = once(lines, 'line').then(([line]) => String(line))
  const host = await Promise.race([first, ended.then(([code]) => Promise.reject(new Error(`it ended with ${code}`)))])
  return {
    host,
    async stop() {
      child.kill('SIGKILL')
      await ended
    },
  }
}

/** Unless it is there and newer than its source. */
async function buildEmulator() {
  const built = await stat(PROGRAM).catch(() => undefined)
  if (built !== undefined && built.mtimeMs > (await stat(join(SOURCE, 'main.go'))).mtimeMs) return
  await mkdir(BUILD, { recursive: true })
  // Renamed when it is complete, because another process may build it at the same time.
  const draft = `${PROGRAM}-${process.pid}`
  const env = { ...process.env, GO111MODULE: 'off', GOPATH: GO_SOURCES }
  await promisify(execFile)('go', ['build', '-o', draft, '.'], { cwd: SOURCE, env }).catch((error) => {
    const hint = 'it needs the Debian packages golang-go and golang-google-cloud-dev'
    throw new Error(`the Bigtable emulator can't be built (${hint}): ${error.message}`, { cause: error })
  })
  await rename(draft, PROGRAM)
}
