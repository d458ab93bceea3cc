import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cp, mkdir, symlink, writeFile } from 'node:fs/promises'
import { join, sep } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { ENV, killAll, startProcess, withTempDir } from './server-process.js'

afterAll(killAll)

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const MADE = ['node_modules', 'dist', '.git', 'data', '.build']
const run = promisify(execFile)

interface Packed {
  readonly filename: string
  readonly size: number
  readonly unpackedSize: number
  readonly files: readonly { readonly path: string }[]
}

/** A program of somebody who has PerKV as a dependency, with TypeScript's own defaults for what is strict. */
const PROGRAM = `
import { connect, isKvError, type PutOptions, type Versioned } from 'perkv/client'
import { KeyvPerkv } from 'perkv/keyv'
import { fastifyRateLimitStore } from 'perkv/rate-limit'
import { sessionStore } from 'perkv/session'

const db = connect(process.argv[2] ?? '')
const { commitTs }: { commitTs: number } = await db.put('k', 'v', { ifAbsent: true })
const version: Versioned<'text'> | undefined = await db.getVersion('k')
if (version?.commitTs !== commitTs) throw new Error('another version')
const options: PutOptions = { ifMatch: version.commitTs }
await db.put('k', 'w', options)
const refused = await db.put('k', 'x', { ifAbsent: true }).catch((error: unknown) => isKvError(error, 'precondition_failed'))
const nobody = await db.getVersion('nobody')
// @ts-expect-error the version of an absent key is undefined
const wrong = await db.put('nobody', 'x', { ifMatch: nobody?.commitTs }).catch((error: unknown) => error instanceof TypeError)
const adapter = new KeyvPerkv(db)
await adapter.set('k', 'cached', 60_000)
const sessions = sessionStore(db)
await new Promise((done) => sessions.set('id', { user: 'ann', cookie: {} }, done))
const user = await new Promise((done) => sessions.get<{ user: string }>('id', (_, session) => done(session?.user)))
const limit = new (fastifyRateLimitStore(db))({})
const hits = await new Promise((done) => limit.incr('ann', (_, counted) => done(counted?.current)))
console.log(await db.get('k'), refused, wrong, await adapter.get<string>('k'), user, hits)
await db.close()
`

/** The same with a database of its own, and with both at once. */
const EMBEDDED = `
import { connect, DataDirectoryError, type Db, isKvError, open, type OpenOptions, type Txn } from 'perkv'
import { isKvError as same } from 'perkv/client'

const options: OpenOptions = { durability: 'async' }
const db: Db = await open('embedded', options)
const twice = await open('embedded').catch((error: unknown) => error instanceof DataDirectoryError)
const sum: number = await db.transaction((txn: Txn) => txn.increment('n', 7), { mode: 'pessimistic' })
// @ts-expect-error there is no such option
const wrong = await open('other', { durabilty: 'sync' }).catch((error: unknown) => error instanceof TypeError)
const other: Db = connect(process.argv[2] ?? '')
console.log(sum, await other.get('k'), twice, wrong, isKvError === same)
await Promise.all([db.close(), other.close()])
`

/** The same with the interface that whoever uses level has. */
const LEVEL = `
import { connect, open } from 'perkv'
import { type LevelTxn, PerkvLevel, type PerkvLevelOptions } from 'perkv/level'

const options: PerkvLevelOptions<string, { n: number }> = { valueEncoding: 'json' }
const local = new PerkvLevel(() => open('level'), options)
const users = local.sublevel<string, string>('users', {})
await local.put('a', { n: 1 })
const n: number = await local.transaction(async (txn: LevelTxn<string, { n: number }>) => {
  const { n } = (await txn.get('a', { forUpdate: true })) ?? { n: 0 }
  await txn.put('a', { n: n + 1 })
  await txn.in(users).put('ann', 'Ann')
  // @ts-expect-error the values of this database are objects
  await txn.put('b', 'text')
  return n + 1
})
for await (const [key, value] of users.iterator()) console.log(n, key satisfies string, value satisfies string)
await local.close()
const shared = connect(process.argv[2] ?? '')
const remote = new PerkvLevel(shared, { prefix: 'mine/' })
await remote.put('b', '2')
console.log(await remote.getMany(['a', 'b']), await shared.get('mine/b'))
await remote.close()
await shared.close()
`

const STRICT = { target: 'es2022', strict: true, types: ['node'] }
const FILES = ['main.ts', 'embedded.ts', 'level.ts']
/** How Node finds types, and how bundlers do. */
const TSCONFIGS = {
  'tsconfig.bundler.json': {
    compilerOptions: { ...STRICT, module: 'esnext', moduleResolution: 'bundler', noEmit: true },
    files: FILES,
  },
  'tsconfig.json': { compilerOptions: { ...STRICT, module: 'nodenext' }, files: FILES },
}

/** Shipped beside LICENSE, README.md, CHANGELOG.md, package.json and the licences of packages that are bundled. */
const SHIPPED =
  /^dist\/.*\.(js|css|html|svg)$|^dist\/reference\/viewer\.js\.gz$|^dist\/((client|keyv|level|rate-limit|session)\/)?index\.d\.ts$|^docs\/.*\.(md|json|svg|png|sh|mjs|yaml|yml|service)$/
/** Routes whose modules the server loads on their first request. */
const LOADED_LATE = ['/openapi.json', '/metrics', '/console', '/docs']
/** With screenshots and the viewer of the reference; it was 3.0 MB without. */
const UNPACKED_BYTES_MAX = 8_500_000

/** As a user starts it. @returns its address, and how to stop it. */
async function startByNpx(project: string, data: string): Promise<{ url: string; stop: () => Promise<void> }> {
  const args = ['perkv', 'serve', '--port', '0', '--data', data]
  const npx = spawn('npx', args, { cwd: project, env: ENV, detached: true, stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = once(npx, 'close') // Of the server's stdout too.
  const line = once(createInterface({ input: npx.stdout }), 'line').then(([text]) => String(text))
  const first = await Promise.race([line, ended.then(() => 'npx ended')])
  const stop = async (): Promise<void> => {
    if (npx.pid !== undefined && npx.exitCode === null) process.kill(-npx.pid, 'SIGTERM')
    await ended
  }
  return { url: /http:\/\/[\d.:]+/.exec(first)?.[0] ?? first, stop }
}

test(
  'a clone that was never built is packed, installed into an empty project, served from and programmed with types',
  () =>
    withTempDir(async (directory) => {
      const clone = join(directory, 'clone')
      await cp(ROOT, clone, {
        recursive: true,
        filter: (path) => !MADE.includes(path.slice(ROOT.length).split(sep).at(-1) ?? ''),
      })
      await symlink(join(ROOT, 'node_modules'), join(clone, 'node_modules'))
      const packed = await run('npm', ['pack', '--json', '--pack-destination', directory], { cwd: clone, env: ENV })
      const [{ filename, size, unpackedSize, files }] = JSON.parse(packed.stdout) as [Packed]
      const paths = files.map(({ path }) => path)
      console.info(`${filename}: ${size} bytes, ${unpackedSize} unpacked, ${paths.length} files`)
      expect(unpackedSize).toBeLessThan(UNPACKED_BYTES_MAX)
      for (const path of [
        'dist/cli.js',
        'dist/index.js',
        'dist/index.d.ts',
        'dist/client/index.js',
        'dist/client/index.d.ts',
        'dist/level/index.js',
        'dist/level/index.d.ts',
        'dist/rate-limit/index.js',
        'dist/rate-limit/index.d.ts',
        'dist/session/index.js',
        'dist/session/index.d.ts',
        'dist/keyv/index.js',
        'dist/keyv/index.d.ts',
        'dist/console/index.html',
        'dist/console/app.js',
        'dist/reference/page.js',
        'dist/reference/viewer.js.gz',
      ])
        expect(paths).toContain(path)
      expect(paths.filter((path) => !SHIPPED.test(path)).sort()).toEqual([
        'CHANGELOG.md',
        'LICENSE',
        'README.md',
        'dist/LICENSES-bundled',
        'package.json',
      ])

      const project = join(directory, 'project')
      await mkdir(project)
      await writeFile(join(project, 'package.json'), '{ "type": "module" }')
      const install = ['install', '--engine-strict', '--prefer-offline', '--no-audit', join(directory, filename)]
      const { stderr } = await run('npm', install, { cwd: project, env: ENV })
      expect(stderr).not.toContain('EBADENGINE')

      const served = await startByNpx(project, join(directory, 'first data'))
      try {
        const put = await fetch(`${served.url}/v1/kv/hello`, { method: 'PUT', body: 'world' })
        expect(put.status).toBe(200)
        expect(await (await fetch(`${served.url}/v1/kv/hello`)).text()).toBe('world')
        for (const path of LOADED_LATE) expect((await fetch(served.url + path)).status, path).toBe(200)
      } finally {
        await served.stop()
      }

      for (const [name, config] of Object.entries(TSCONFIGS))
        await writeFile(join(project, name), JSON.stringify(config))
      await writeFile(join(project, 'main.ts'), PROGRAM)
      await writeFile(join(project, 'embedded.ts'), EMBEDDED)
      await writeFile(join(project, 'level.ts'), LEVEL)
      await mkdir(join(project, 'node_modules/@types'))
      for (const name of ['@types/node', 'undici-types'])
        await symlink(join(ROOT, 'node_modules', name), join(project, 'node_modules', name))
      const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
      for (const name of Object.keys(TSCONFIGS)) {
        const compiled = await run(process.execPath, [tsc, '-p', join(project, name)]).catch((error) => error)
        expect(compiled.stdout, name).toBe('')
      }

      const server = await startProcess(join(directory, 'data'), [], join(project, 'node_modules/.bin/perkv'))
      const { stdout } = await run(process.execPath, ['main.js', server.url], { cwd: project, env: ENV })
      expect(stdout).toBe('w true true cached ann 1\n')
      const embedded = await run(process.execPath, ['embedded.js', server.url], { cwd: project, env: ENV })
      expect(embedded.stdout).toBe('7 w true true true\n')
      const level = await run(process.execPath, ['level.js', server.url], { cwd: project, env: ENV })
      expect(level.stdout).toBe("2 ann Ann\n[ undefined, '2' ] 2\n")
      expect(await server.stop('SIGTERM')).toEqual({ code: 0, signal: null })
    }),
  240_000,
)
