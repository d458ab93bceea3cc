import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startServer, type TestServer } from '../support.js'

/** Programs in Deno, whose own client speaks HTTP/2. Its package starts the program that npm has installed for this system. */

const DENO = createRequire(import.meta.url).resolve('deno/bin.cjs')
const GUIDE = new URL('../../../docs/deno-kv.md', import.meta.url)

let server: TestServer
let url: string
let directory: string

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'perkv-deno-'))
  server = await startServer({ kvConnect: true })
  url = `http://127.0.0.1:${await server.listen()}`
})
afterAll(async () => {
  await server.close()
  await rm(directory, { recursive: true, force: true })
})

/** @returns what it prints. */
function run(program: string, ...args: readonly string[]): Promise<string> {
  const env = { ...process.env, DENO_DIR: directory, DENO_KV_ACCESS_TOKEN: 'a-token-of-any-kind', NO_COLOR: '1' }
  const flags = ['run', '--no-config', '--no-lock', '--no-remote', '--allow-all', '--unstable-kv']
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [DENO, ...flags, program, ...args], { env }, (error, stdout, stderr) => {
      if (error === null) resolve(stdout)
      else reject(new Error(`${stdout}${stderr}`))
    })
  })
}

test('the client of Deno gets the answers of Deno', { tags: ['long'] }, async () => {
  const printed = await run(fileURLToPath(new URL('deno-program.mjs', import.meta.url)), `${url}/kv-connect/asked`)
  expect(printed.trimEnd().split('\n')).toEqual([
    'unset: { key: [ "a" ], value: null, versionstamp: null }',
    'set: true',
    'value: { list: [ 1, 2n, 1970-01-01T00:00:00.000Z ], set: Set(1) { "x" } }',
    'check fails: { ok: false }',
    'check holds: true',
    'consistency: 1',
    'prefix: "la lb lc ld"',
    'batches: "la lb lc ld"',
    'reverse: "ld lc lb la"',
    'range: "lb lc ld"',
    'limit: "lb lc"',
    'cursor: "lc ld"',
    'many: [ "m", null, "la" ]',
    'KvU64: [Deno.KvU64: 6n]',
    'bigint: -3n',
    `wrong type: "Failed to perform 'sum' mutation on a non-U64 value in the database"`,
    'versionstamped: [ [ true, "second" ], [ true, "third" ] ]',
    'by its name: "second"',
    'expired: null',
    'watch: [ null, null ]',
    'both: [ 1, 2 ]',
    'one: [ null, 2 ]',
    'queue: "Error: Enqueue operations are not supported in KV Connect"',
  ])
})

test('the first program of the guide', { tags: ['long'] }, async () => {
  const [, program = ''] = /^```ts\n(.*?)^```/ms.exec(await readFile(GUIDE, 'utf8')) ?? []
  const path = join(directory, 'guide.ts')
  await writeFile(path, program.replace('http://127.0.0.1:7400', url))
  expect(program.split('\n').length).toBeLessThan(12)
  const wanted = [...program.matchAll(/\/\/ -> (.*)$/gm)].map(([, line]) => line)
  expect(wanted).not.toEqual([])
  expect((await run(path)).trimEnd().split('\n')).toEqual(wanted)
})
