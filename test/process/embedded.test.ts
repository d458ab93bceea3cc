import { execFile } from 'node:child_process'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest'
import { connect, open } from '../../src/index.js'
import { failureOf } from '../coordinator/support.js'
import { ENV, killAll, startProcess } from './server-process.js'

/** The built library in processes of its own; `npm test` builds it first. */

afterAll(killAll)

let root: string
let data: string

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'perkv-embedded-process-'))
  data = join(root, 'data')
})
afterEach(() => rm(root, { recursive: true, force: true }))

const INDEX = new URL('../../dist/index.js', import.meta.url).href

interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs a program that has `open` and `data`, to its end. */
function run(program: string): Promise<Ended> {
  const source = `import { open } from '${INDEX}'\nconst data = ${JSON.stringify(data)}\n${program}`
  return new Promise((resolve) => {
    const args = ['--input-type=module', '--eval', source]
    const child = execFile(process.execPath, args, { env: ENV, timeout: 200_000 }, (_error, stdout, stderr) => {
      resolve({ code: child.exitCode, signal: child.signalCode, stdout, stderr })
    })
  })
}

const ENDED = { code: 0, signal: null, stderr: '' }

test('a program that never closes ends all the same, and what it was told is there', async () => {
  const program = `
    const db = await open(data)
    await db.transaction((txn) => txn.put('a', '1'))
    const open_ = await db.begin({ mode: 'pessimistic' })
    await open_.put('b', '1')
    await db.put('c', '1')
    console.log('written')`
  expect(await run(program)).toEqual({ ...ENDED, stdout: 'written\n' })
  const db = await open(data)
  expect(await db.batchGet(['a', 'b', 'c'])).toEqual(['1', undefined, '1'])
  await db.put('b', '2') // The lock went with the process.
  await db.close()
})

test('a process that is killed keeps what it was told', async () => {
  for (const durability of ['sync', 'async']) {
    const program = `
      const db = await open(data, { durability: '${durability}' })
      for (let i = 0; i < 100; i++) await db.transaction((txn) => txn.increment('n ${durability}'))
      process.kill(process.pid, 'SIGKILL')`
    expect(await run(program)).toMatchObject({ signal: 'SIGKILL', stderr: '' })
  }
  const db = await open(data)
  expect(await db.batchGet(['n sync', 'n async'])).toEqual(['100', '100'])
  await db.close()
})

test('one process at a time: a server, a program, each after the other on the same data', async () => {
  const inUse = `the data directory ${data} is in use by another process`
  const server = await startProcess(data)
  await connect(server.url).put('from', 'server')
  expect(await failureOf(open(data))).toMatchObject({ name: 'DataDirectoryError', message: inUse })
  await server.stop('SIGTERM')
  const db = await open(data)
  expect(await db.get('from')).toBe('server')
  const { commitTs } = await db.put('from', 'program')
  const refused = await run(`await open(data).catch(({ message }) => console.log(message))`)
  expect(refused).toEqual({ ...ENDED, stdout: `${inUse}\n` })
  await db.close()
  const again = await startProcess(data)
  expect(await connect(again.url).getVersion('from')).toEqual({ value: 'program', commitTs })
  await again.stop('SIGTERM')
  expect(await readdir(root)).toEqual(['data'])
})

test('importing it loads no web server', async () => {
  const { stdout } = await run(`
    import { createRequire } from 'node:module'
    const cached = Object.keys(createRequire('${INDEX}').cache)
    console.log(cached.filter((path) => /fastify|pino|find-my-way|ajv/.test(path)).length)
    console.log(process.moduleLoadList.includes('NativeModule http'))
    await (await open(data)).close()`)
  expect(stdout).toBe('0\nfalse\n')
})
