import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ENV, killAll, type ServerProcess, startProcess } from '../process/server-process.js'

/** The examples of docs/client.md as a user runs them, and the programs in its text and that of the README. */

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const EXAMPLES = join(ROOT, 'docs/examples/client')

interface Run {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

function run(args: readonly string[]): Promise<Run> {
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [...args], { env: ENV, cwd: ROOT, timeout: 200_000 }, (error, stdout, stderr) => {
      if (error === null) resolve({ code: 0, stdout, stderr })
      else if (typeof error.code === 'number') resolve({ code: error.code, stdout, stderr })
      else reject(error)
    })
  })
}

let directory: string
let server: ServerProcess

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'perkv-client-examples-'))
  server = await startProcess(join(directory, 'data'), ['--kv-connect'])
  // As on a server that has run for a while: what is older than ten minutes cannot be read.
  expect((await fetch(`${server.url}/v1/admin/gc`, { method: 'POST' })).status).toBe(200)
})

afterAll(async () => {
  killAll()
  if (directory !== undefined) await rm(directory, { recursive: true, force: true })
})

test('bank.mjs: the books are right, for two banks on one server', async () => {
  const bank = join(EXAMPLES, 'bank.mjs')
  for (const { code, stdout, stderr } of await Promise.all([run([bank, server.url]), run([bank, server.url])])) {
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const [, moved, refused] = /^8 tellers: (\d+) transfers, (\d+) refused/.exec(stdout) ?? []
    expect(Number(moved) + Number(refused)).toBe(8 * 25)
    const balances = [...stdout.matchAll(/^ {2}(?:Ann|Bob|Joe|Sue|Zoë) +(\d+)$/gm)].map(([, balance]) =>
      Number(balance),
    )
    expect(balances).toHaveLength(5)
    expect(balances.reduce((sum, balance) => sum + balance, 0)).toBe(500)
    expect(stdout.endsWith('\ntotal 500 of 500; 20 audits meanwhile: 500\n')).toBe(true)
  }
})

test('queue.mjs: every job is done once', async () => {
  const { code, stdout, stderr } = await run([join(EXAMPLES, 'queue.mjs'), server.url])
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  expect(stdout).toMatch(/\n60 jobs: 60 done, 0 left; workers died \d+ times on the way\n$/)
})

test.each(['bank.mjs', 'queue.mjs'])('%s says in one line what is wrong', async (name) => {
  const { code, stdout, stderr } = await run([join(EXAMPLES, name), 'nowhere'])
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(stderr).toMatch(new RegExp(`^${name}: .*URL.*\\n$`))
})

describe.each([
  { file: 'docs/client.md', programsMin: 9 },
  { file: 'docs/observers.md', programsMin: 2 },
  { file: 'docs/changes.md', programsMin: 2 },
  { file: 'docs/deno-kv.md', programsMin: 1 },
  { file: 'docs/keyv.md', programsMin: 1 },
  { file: 'docs/rate-limits.md', programsMin: 2 },
  { file: 'docs/sessions.md', programsMin: 2 },
  { file: 'README.md', programsMin: 1 },
])('$file', async ({ file, programsMin }) => {
  const text = await readFile(join(ROOT, file), 'utf8')
  const programs = [...text.matchAll(/^```js\n(.*?)^```/gms)].map(([, program = '']) => program)

  test('has programs', () => expect(programs.length).toBeGreaterThanOrEqual(programsMin))

  test.each(
    programs.map((program, i) => ({ program, name: `${i + 1}: ${program.split('\n').find((line) => line !== '')}` })),
  )('program $name', async ({ program }) => {
    const prelude = /\b(?:connect|openKv)\(/.test(program)
      ? ''
      : `import { connect } from 'perkv/client'\nconst db = connect(URL)\n`
    const source = `${prelude}${program}`
      .replace(/connect\(.*\)/, `connect('${server.url}')`)
      .replace(/openKv\('http:\/\/[^/]*/, `openKv('${server.url}`)
    const { code, stdout, stderr } = await run(['--input-type=module', '--eval', source])
    expect({ code, stderr }, source).toEqual({ code: 0, stderr: '' })
    const wanted = [...program.matchAll(/\/\/ -> (.*)$/gm)].map(([, line]) => line)
    expect(stdout.split('\n').filter((line) => wanted.includes(line))).toEqual(wanted)
  })
})
