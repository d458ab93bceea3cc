import { execFile } from 'node:child_process'
import { cp, mkdir, readdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { CLIENT_SAMPLES } from '../../src/http/openapi/client-samples.js'
import { withTempDir } from './server-process.js'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const TSC = join(ROOT, 'node_modules/typescript/bin/tsc')
const ENTRIES = [
  'index.d.ts',
  'client/index.d.ts',
  'keyv/index.d.ts',
  'level/index.d.ts',
  'rate-limit/index.d.ts',
  'session/index.d.ts',
]
const run = promisify(execFile)

const PROGRAM = `
import * as perkv from 'perkv'
import { connect, type Connection, Db, type Fetch, KvError, type Lease, type Txn } from 'perkv/client'
import { KeyvPerkv } from 'perkv/keyv'
import { fastifyRateLimitStore } from 'perkv/rate-limit'
import { type SessionStore, sessionStore } from 'perkv/session'

export const db: Db = await perkv.open(':memory:', { durability: 'async' })
export const same: typeof KvError = perkv.KvError
export const remote: Connection = connect('http://127.0.0.1')
export const sum: number = await db.transaction((txn: Txn) => txn.increment('n'), { mode: 'pessimistic' })
export const cached: Promise<string | undefined> = new KeyvPerkv(db, { prefix: 'cache/' }).get<string>('k')
export const sessions: SessionStore = sessionStore(db, { ttl: '2h' })
export const limits: new (settings: object) => object = fastifyRateLimitStore(db)
export const lease: Lease = await db.lease('name', { ttlMs: 1000 })
for await (const { key, value } of db.scan()) [key, value] satisfies [string, string]
for await (const { changes } of remote.changes({ prefix: 'k' })) changes.map(({ op }) => op satisfies string)
export const send: Fetch = () => Promise.reject(new Error('nobody'))
// @ts-expect-error a value is text or bytes
await db.put('k', 7)
// @ts-expect-error a database is opened, not constructed
new Db()
// @ts-expect-error what only PerKV itself uses is not there
db.held
`

/** What these name are those of the platform, wherever it has them. */
const ON_A_PLATFORM = `
import { connect, type Fetch } from 'perkv/client'

export const send: Fetch = async (url, init) => {
  init.signal satisfies AbortSignal | null | undefined
  const response = await fetch(url, init)
  return response.ok ? response : Response.error()
}
const db = connect('http://127.0.0.1', { fetch })
await db.get('k', { signal: AbortSignal.timeout(1) })
// @ts-expect-error a signal of another kind
await db.get('k', { signal: 1 })
`

/** What the reference shows for each call. */
const SAMPLES = `
import { connect } from 'perkv/client'

const db = connect('http://localhost:7400')
const { commitTs } = await db.put('k', 'v')
${Object.entries(CLIENT_SAMPLES)
  .map(([id, source]) => `export async function ${id}() {\n${source}\n}`)
  .join('\n')}
`

const NODENEXT = { module: 'nodenext', target: 'es2022' }
const BUNDLER = { module: 'esnext', moduleResolution: 'bundler', target: 'es2022' }

test('the types are one file for each entry, and need no others', () =>
  withTempDir(async (directory) => {
    const shipped = (await readdir(join(ROOT, 'dist'), { recursive: true })).filter((path) => path.endsWith('.d.ts'))
    expect(shipped.sort()).toEqual([...ENTRIES].sort())
    const installed = join(directory, 'node_modules/perkv')
    for (const path of ['package.json', ...ENTRIES.map((entry) => `dist/${entry}`)]) {
      await mkdir(dirname(join(installed, path)), { recursive: true })
      await cp(join(ROOT, path), join(installed, path))
    }
    await writeFile(join(directory, 'package.json'), '{ "type": "module" }')
    await writeFile(join(directory, 'program.ts'), PROGRAM)
    await writeFile(join(directory, 'platform.ts'), ON_A_PLATFORM)
    await writeFile(join(directory, 'samples.ts'), SAMPLES)
    const compile = async (name: string, options: object, files: readonly string[]): Promise<void> => {
      const compilerOptions = { strict: true, noEmit: true, types: [], skipLibCheck: false, ...options }
      await writeFile(join(directory, name), JSON.stringify({ compilerOptions, files }))
      const compiled = await run(process.execPath, [TSC, '-p', join(directory, name)]).catch((error) => error)
      expect(compiled.stdout, name).toBe('')
    }
    await compile('language.json', { ...NODENEXT, lib: ['es2022'] }, ['program.ts'])
    await compile('default.json', NODENEXT, ['program.ts', 'platform.ts', 'samples.ts'])
    await compile('bundler.json', { ...BUNDLER, exactOptionalPropertyTypes: true }, ['program.ts', 'platform.ts'])

    for (const name of ['@types/node', 'undici-types']) {
      const copy = join(directory, 'node_modules', name)
      await cp(join(ROOT, 'node_modules', name), copy, { recursive: true })
    }
    const node = { ...NODENEXT, lib: ['es2022'], types: ['node'], skipLibCheck: true }
    await compile('node.json', node, ['program.ts', 'platform.ts'])
  }))
