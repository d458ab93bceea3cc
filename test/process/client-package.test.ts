import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { chromium } from 'playwright-core'
import { rolldown } from 'rolldown'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { CHROMIUM, CHROMIUM_FLAGS, hasChromium } from './chromium.js'
import { ENV, killAll, type ServerProcess, startProcess } from './server-process.js'

/** The package that `npm run pack:client` makes of the build, installed into an empty folder. */

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const isThere = hasChromium('perkv-client')
/** Of the module; it was 214 KB, and 51 KB by gzip. */
const MODULE_BYTES_MAX = 300_000
const run = promisify(execFile)

/** Runs on every platform. */
const PROGRAM = `
import { connect, isKvError } from 'perkv-client'

export async function tryAll(url, prefix) {
  const db = connect(url)
  const answers = []
  await db.put(prefix + 'bytes', new Uint8Array([0, 255]))
  const followed = (async () => {
    const seen = new Set()
    for await (const { changes } of db.changes({ prefix, snapshot: true, keysOnly: true })) {
      for (const { key } of changes) seen.add(key.slice(prefix.length))
      if (seen.has('last')) return [...seen].sort()
    }
  })()
  const transaction = async (txn) => {
    await txn.put(prefix + 'text', 'Zürich 🦀')
    return txn.increment(prefix + 'n', 7)
  }
  answers.push(await db.transaction(transaction, { mode: 'pessimistic', isolation: 'serializable' }))
  answers.push(await db.get(prefix + 'text'), Array.from(await db.get(prefix + 'bytes', { as: 'bytes' })))
  answers.push(await db.put(prefix + 'n', 'x', { ifAbsent: true }).catch((error) => isKvError(error, 'precondition_failed')))
  await db.put(prefix + 'last', '')
  answers.push(await followed)
  await db.close()
  return JSON.stringify(answers)
}
`
const ANSWERS = JSON.stringify([7, 'Zürich 🦀', [0, 255], true, ['bytes', 'last', 'n', 'text']])

const TYPED = `
import { connect, isKvError, type Db, type Versioned } from 'perkv-client'

const db: Db = connect('http://127.0.0.1')
export const version: Promise<Versioned<'text'> | undefined> = db.getVersion('k')
export const sum: Promise<number> = db.transaction((txn) => txn.increment('n'))
// @ts-expect-error a value is text or bytes
export const wrong = db.put('k', 7).catch((error: unknown) => isKvError(error, 'write_conflict'))
for await (const { changes } of db.changes({ prefix: 'k' })) changes.map(({ op }) => op)
`

const LEVEL = `
import { connect, isKvError } from 'perkv-client'
import { PerkvLevel } from 'perkv-client/level'

const db = connect(process.argv[2] ?? '')
const level = new PerkvLevel<string, number>(db, { prefix: 'n/', valueEncoding: 'json' })
await level.put('a', 1)
const sum: number = await level.transaction(async (txn) => {
  const sum = ((await txn.get('a')) ?? 0) + 1
  await txn.put('a', sum)
  return sum
})
const error = await level.put('k'.repeat(5000), 1).catch((error: { code: string, cause: unknown }) => error)
console.log(sum, error?.code, isKvError(error?.cause, 'payload_too_large'))
await level.close()
await db.close()
`

let directory: string
let project: string
let server: ServerProcess

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'perkv-client-'))
  project = join(directory, 'project')
  await mkdir(project)
  await run(process.execPath, [join(ROOT, 'src/client/package/pack.mjs'), '--silent'], { cwd: directory })
  const [tarball = ''] = (await readdir(directory)).filter((name) => name.endsWith('.tgz'))
  expect(tarball).toBe(`perkv-client-${JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version}.tgz`)
  await writeFile(join(project, 'package.json'), '{ "type": "module" }')
  await run('npm', ['install', '--offline', '--no-audit', join(directory, tarball)], { cwd: project, env: ENV })
  await writeFile(join(project, 'try-all.js'), PROGRAM)
  const main = `import { tryAll } from './try-all.js'\nconsole.log(await tryAll(...process.argv.slice(2)))\n`
  await writeFile(join(project, 'main.js'), main)
  server = await startProcess(join(directory, 'data'))
})

afterAll(async () => {
  killAll()
  await rm(directory, { recursive: true, force: true, maxRetries: 5 })
})

const installed = (...path: string[]): string => join(project, 'node_modules', 'perkv-client', ...path)

test('brings nothing but a module, that of level, their types, a README and licences', async () => {
  expect((await readdir(join(project, 'node_modules'))).filter((name) => !name.startsWith('.'))).toEqual([
    'perkv-client',
  ])
  expect((await readdir(installed())).sort()).toEqual([
    'LICENSE',
    'LICENSE-msgpackr',
    'README.md',
    'index.d.ts',
    'index.js',
    'keyv',
    'level',
    'package.json',
    'rate-limit',
    'session',
  ])
  const source = await readFile(installed('index.js'))
  console.info(`perkv-client/index.js: ${source.length} bytes, ${gzipSync(source).length} by gzip`)
  expect(source.length).toBeLessThan(MODULE_BYTES_MAX)
  expect(source.toString()).not.toMatch(/^import\b|\bimport\(|\brequire\(|\/(?:work|home|tmp|root)\//m)
})

test('has a database for level, where abstract-level is', async () => {
  const alone = await run(process.execPath, ['--eval', "import('perkv-client/level')"], { cwd: project }).catch(
    (error) => error,
  )
  expect(alone.stderr).toContain("Cannot find package 'abstract-level'")
  const other = join(directory, 'with-level')
  await cp(project, other, { recursive: true })
  for (const name of ['abstract-level', 'level-supports', 'level-transcoder', 'maybe-combine-errors', 'module-error'])
    await symlink(join(ROOT, 'node_modules', name), join(other, 'node_modules', name))
  await writeFile(join(other, 'level.ts'), LEVEL)
  const config = {
    compilerOptions: { target: 'es2022', module: 'nodenext', strict: true, types: ['node'], skipLibCheck: true },
    files: ['level.ts'],
  }
  await mkdir(join(other, 'node_modules/@types'))
  for (const name of ['@types/node', 'undici-types'])
    await symlink(join(ROOT, 'node_modules', name), join(other, 'node_modules', name))
  await writeFile(join(other, 'tsconfig.json'), JSON.stringify(config))
  const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
  const compiled = await run(process.execPath, [tsc, '-p', join(other, 'tsconfig.json')]).catch((error) => error)
  expect(compiled.stdout).toBe('')
  const { stdout } = await run(process.execPath, ['level.js', server.url], { cwd: other, env: ENV })
  expect(stdout).toBe('2 LEVEL_INVALID_KEY true\n')
})

test('runs in Node', async () => {
  const { stdout } = await run(process.execPath, ['main.js', server.url, 'node/'], { cwd: project, env: ENV })
  expect(stdout.trim()).toBe(ANSWERS)
})

test.each([
  ['nodenext', { module: 'nodenext', lib: ['es2023', 'dom'], types: [] }],
  ['bundler', { module: 'esnext', moduleResolution: 'bundler', lib: ['es2023', 'dom'], types: [] }],
])('has types by the rules of %s, without those of Node', async (name, options) => {
  const config = {
    compilerOptions: { target: 'es2023', strict: true, noEmit: true, ...options },
    files: ['typed.ts'],
  }
  await writeFile(join(project, 'typed.ts'), TYPED)
  await writeFile(join(project, `${name}.json`), JSON.stringify(config))
  const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
  const compiled = await run(process.execPath, [tsc, '-p', join(project, `${name}.json`)]).catch((error) => error)
  expect(compiled.stdout).toBe('')
})

/** How each platform resolves `exports`: https://nodejs.org/api/packages.html, and the manuals of Bun, Deno and bundlers. */
test.each([
  ['Node', ['node', 'import', 'module-sync', 'node-addons']],
  ['browsers', ['browser', 'import', 'module']],
  ['Bun', ['bun', 'node', 'import', 'require']],
  ['Deno', ['deno', 'node', 'import', 'module-sync']],
  ['Workers', ['workerd', 'worker', 'browser', 'import']],
])('is one and the same module by the conditions of %s', async (_platform, conditionNames) => {
  const bundle = await rolldown({
    cwd: project,
    input: 'try-all.js',
    resolve: { conditionNames },
    platform: 'neutral',
    onLog(_level, { message }) {
      throw new Error(message)
    },
  })
  const { output } = await bundle.generate({ format: 'es' })
  expect(output.map((chunk) => chunk.type === 'chunk' && [chunk.imports, chunk.moduleIds])).toEqual([
    [[], [installed('index.js'), join(project, 'try-all.js')]],
  ])
})

test('is left out of a bundle that uses nothing of it', async () => {
  await writeFile(join(project, 'unused.js'), `import { connect } from 'perkv-client'\nconsole.log('unused')\n`)
  const bundle = await rolldown({ cwd: project, input: 'unused.js', platform: 'browser' })
  const { output } = await bundle.generate({ format: 'es' })
  expect(output[0].code.length).toBeLessThan(200)
})

/** Their programs are packages of npm. */
test.each([
  ['bun', []],
  ['deno', ['run', '--allow-net']],
])(
  'runs in %s',
  async (name, flags) => {
    const prefix = join(directory, name)
    const install = ['install', '--prefix', prefix, '--no-audit', '--prefer-offline', name]
    const failure = await run('npm', install, { env: ENV, timeout: 120_000 }).catch((error: Error) => error)
    if (failure instanceof Error) {
      console.warn(`perkv-client is not tested in ${name}, which npm could not install: ${failure.message}`)
      return
    }
    const program = join(prefix, 'node_modules/.bin', name)
    const { stdout } = await run(program, [...flags, 'main.js', server.url, `${name}/`], { cwd: project, env: ENV })
    expect(stdout.trim()).toBe(ANSWERS)
  },
  200_000,
)

const PAGE = `<!doctype html><title>perkv-client</title>
<script type="module" src="/page.js"></script>`

/** Files that a page loads, and the server behind the same origin. */
async function serveBeside(url: string, files: ReadonlyMap<string, string | Buffer>): Promise<AddressInfo> {
  const front = createServer((incoming, answer) => {
    const file = files.get(incoming.url ?? '')
    if (file === undefined) {
      const { method, headers } = incoming
      const behind = request(url + incoming.url, { method, headers, agent: false }, (response) => {
        answer.writeHead(response.statusCode ?? 500, response.headers)
        response.pipe(answer)
      })
      behind.on('error', () => answer.destroy())
      answer.on('close', () => behind.destroy())
      incoming.pipe(behind)
      return
    }
    const isPage = incoming.url === '/'
    // Nothing but modules of this origin: no eval either.
    if (isPage) answer.setHeader('content-security-policy', "default-src 'none'; script-src 'self'; connect-src 'self'")
    answer.setHeader('content-type', isPage ? 'text/html' : 'text/javascript').end(file)
  })
  await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve))
  front.unref()
  return front.address() as AddressInfo
}

test.skipIf(!isThere)('runs in Chromium from a static file, unbundled', async () => {
  const bare = PROGRAM.replace("'perkv-client'", "'/perkv-client/index.js'")
  const { port } = await serveBeside(
    server.url,
    new Map<string, string | Buffer>([
      ['/', PAGE],
      ['/perkv-client/index.js', await readFile(installed('index.js'))],
      ['/try-all.js', bare],
      ['/favicon.ico', ''],
      [
        '/page.js',
        `import { tryAll } from '/try-all.js'\nconst show = (text) => { document.title = text }
        tryAll(location.origin, 'page/').then(show, show)`,
      ],
    ]),
  )
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: CHROMIUM_FLAGS })
  try {
    const page = await browser.newPage()
    const complaints: string[] = []
    page.on('pageerror', ({ message }) => complaints.push(message))
    page.on('console', (message) => complaints.push(message.text()))
    await page.goto(`http://127.0.0.1:${port}/`)
    await expect.poll(() => page.title(), { timeout: 30_000 }).toBe(ANSWERS)
    // The condition that fails is a 412, which the browser reports.
    expect(complaints.filter((text) => !text.includes('412'))).toEqual([])
  } finally {
    await browser.close()
  }
})
