import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ENV, killAll, type ServerProcess, startProcess } from '../process/server-process.js'
import { ROOT, runProgram } from './run-program.js'

/** The index as a user runs it: its own checks, and workers of their own that are killed. */

const INDEX = join(ROOT, 'docs/examples/index/index.mjs')

let directory: string
let server: ServerProcess

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'perkv-index-'))
  server = await startProcess(join(directory, 'data'))
})
afterAll(async () => {
  killAll()
  if (directory !== undefined) await rm(directory, { recursive: true, force: true })
})

async function startWork(): Promise<ChildProcess> {
  const child = spawn(process.execPath, [INDEX, 'work', server.url], { env: ENV, cwd: ROOT, stdio: 'pipe' })
  await once(createInterface({ input: child.stdout }), 'line')
  return child
}

async function documentsWith(word: string): Promise<string[]> {
  const response = await fetch(`${server.url}/v1/kv?keys_only=true&prefix=word/${word}/`)
  const { pairs } = (await response.json()) as { pairs: { key: string }[] }
  return pairs.map(({ key }) => key.slice(`word/${word}/`.length))
}

async function countOf(prefix: string): Promise<number> {
  const response = await fetch(`${server.url}/v1/kv?count_only=true&prefix=${prefix}`)
  return ((await response.json()) as { count: number }).count
}

async function report(): Promise<string> {
  return (await fetch(`${server.url}/v1/kv/report/index`)).text()
}

async function put(name: string, text: string): Promise<void> {
  expect((await fetch(`${server.url}/v1/kv/doc/${name}`, { method: 'PUT', body: text })).status).toBe(200)
}

test('indexes documents, and again with some of them there already', async () => {
  for (const limit of ['20', '25']) {
    const { code, stdout, stderr } = await runProgram(INDEX, [server.url, '--limit', limit])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toContain(`, ${limit} documents of `)
    expect(stdout.match(/keys of the index, as if made anew +[\d,]+/g)).toHaveLength(3)
    expect(stdout.endsWith('\nThe index is right.\n')).toBe(true)
  }
})

test('workers follow what anybody puts, also where one of them is killed', async () => {
  const [killed, other] = await Promise.all([startWork(), startWork()])
  for (let i = 0; i < 20; i++) {
    await put(`here/a/${i}`, `xylophone ${i}`)
    if (i === 10) killed.kill('SIGKILL')
  }
  while ((await documentsWith('xylophone')).length < 20) await sleep(20)
  // One of them reports. If it is the one that was killed, the other one does once its lease is over.
  const documents = await countOf('doc/')
  while (!(await report()).includes(`"documents":${documents},`)) await sleep(20)
  const ended = once(other, 'exit')
  other.kill('SIGTERM')
  expect(await ended).toEqual([0, null])
  const { code, stdout } = await runProgram(INDEX, [server.url, '--limit', '5'])
  expect({ code, isRight: stdout.endsWith('\nThe index is right.\n') }).toEqual({ code: 0, isRight: true })
})

test('says in one line what is wrong', async () => {
  const cases = [
    { args: ['http://127.0.0.1:9'], code: 1, line: /^index\.mjs: .*127\.0\.0\.1:9.*\n$/ },
    { args: [server.url, '--limit', '0'], code: 2, line: /^index\.mjs: --limit must be a number from 1, not "0"\n$/ },
    { args: [server.url, '--documents', 'x'], code: 2, line: /^index\.mjs: --documents must be packages or speeches/ },
    { args: ['nowhere'], code: 2, line: /^index\.mjs: "nowhere" is not a URL\n$/ },
  ]
  for (const { args, code, line } of cases) {
    const result = await runProgram(INDEX, args)
    expect(result.code, args.join(' ')).toBe(code)
    expect(result.stderr).toMatch(line)
    expect(result.stderr.trimEnd().split('\n')).toHaveLength(1)
  }
})
