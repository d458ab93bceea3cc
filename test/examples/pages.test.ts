import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ENV, killAll, type ServerProcess, startProcess } from '../process/server-process.js'

/** The commands of a page and what they print, in their order, on one server. */

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const run = promisify(execFile)

interface Command {
  readonly command: string
  readonly output: string
}

/** A line with `$ ` begins a command, four spaces continue it; the rest is what it prints. */
function commandsOf(text: string): Command[] {
  const blocks = [...text.matchAll(/^```console\n(.*?)^```/gms)].map(([, block = '']) => block)
  return blocks.flatMap((block) =>
    block
      .split(/^\$ /m)
      .slice(1)
      .map((one) => {
        const lines = one.trimEnd().split('\n')
        const size = lines.findIndex((line, i) => i > 0 && !line.startsWith('    '))
        const end = size === -1 ? lines.length : size
        return { command: lines.slice(0, end).join('\n'), output: lines.slice(end).join('\n') }
      }),
  )
}

/** Timestamps and moments differ from run to run; `…` stands for anything. */
function patternOf(output: string): RegExp {
  const escaped = output.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  const anyTime = escaped
    .replace(/\b\d{16}\b/g, '\\d{16}')
    .replace(/\d{4}-\d\d-\d\dT[\d:]+\\\.\d{3}Z/g, '[-\\d:.TZ]{24}')
  return new RegExp(`^${anyTime.replaceAll('…', '[^]*?')}$`)
}

let directory: string
let server: ServerProcess

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'perkv-pages-'))
  server = await startProcess(join(directory, 'data'))
})
afterAll(async () => {
  killAll()
  if (directory !== undefined) await rm(directory, { recursive: true, force: true })
})

describe.each([
  { page: 'docs/observers.md', commandsMin: 13 },
  { page: 'docs/changes.md', commandsMin: 15 },
])('$page', async ({ page, commandsMin }) => {
  const commands = commandsOf(await readFile(join(ROOT, page), 'utf8'))

  test('its commands print what it says', async () => {
    expect(commands.length).toBeGreaterThanOrEqual(commandsMin)
    const separator = '\u0001'
    const script = commands.map(({ command }) => `${command}\nprintf '${separator}'\n`).join('')
    const here = script.replaceAll('localhost:7400', server.url)
    const { stdout } = await run('bash', ['-c', `curl() { command curl -sS "$@"; }\n${here}`], { env: ENV })
    const outputs = stdout.split(separator).map((output) => output.trim())
    for (const [i, { command, output }] of commands.entries()) expect(outputs[i], command).toMatch(patternOf(output))
  })
})
