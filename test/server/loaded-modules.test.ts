import { cp, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { CLI, killAll, startProcess, withTempDir } from '../process/server-process.js'

afterAll(killAll)

const DIST = dirname(CLI)
const PROJECT = dirname(DIST)

/**
 * Nearly all of the time to start, and half of the memory of an idle server, is loaded modules. These are the packages with
 * CommonJS modules that a server loads; a new one has to be worth what it costs.
 */
const PACKAGES = [
  '@fastify/error',
  '@fastify/forwarded',
  '@fastify/proxy-addr',
  'abstract-level',
  'abstract-logging',
  'avvio',
  'classic-level',
  'dequal',
  'fast-decode-uri-component',
  'fast-deep-equal',
  'fast-json-stringify',
  'fast-querystring',
  'fastify',
  'fastq',
  'find-my-way',
  'ipaddr.js',
  'level-supports',
  'level-transcoder',
  'maybe-combine-errors',
  'module-error',
  'node-gyp-build',
  'process-warning',
  'ret',
  'reusify',
  'rfdc',
  'safe-regex2',
  'secure-json-parse',
  'semver',
  'toad-cache',
]

/** OpenTelemetry's SDK, bundled. */
const TRACES = 'cli-otlp-traces.js'

/** Runs PerKV, and writes the modules that it has loaded when it ends. */
const program = (cli: string, list: string): string => `
import { writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
process.on('exit', () => {
  writeFileSync(${JSON.stringify(list)}, JSON.stringify(Object.keys(createRequire(import.meta.url).cache)))
})
await import(${JSON.stringify(cli)})
`

function packageOf(path: string): string {
  const [scope = '', name = ''] = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length).split('/')
  return scope.startsWith('@') ? `${scope}/${name}` : scope
}

test('a server is loaded from its bundle alone, with few packages, whatever it is asked for', { tags: ['long'] }, () =>
  withTempDir(async (directory) => {
    const dist = join(directory, 'dist')
    await mkdir(dist)
    // Without those of traces, which nobody asks for: the server could not start if it loaded them.
    const names = (await readdir(DIST)).filter((name) => /^cli.*\.js$/.test(name))
    expect(names).toContain(TRACES)
    for (const name of names) if (name !== TRACES) await cp(join(DIST, name), join(dist, name))
    await cp(join(PROJECT, 'package.json'), join(directory, 'package.json'))
    await symlink(join(PROJECT, 'node_modules'), join(directory, 'node_modules'))
    const list = join(directory, 'loaded.json')
    const main = join(directory, 'main.mjs')
    await writeFile(main, program(join(dist, 'cli.js'), list))

    const server = await startProcess(join(directory, 'data'), [], main)
    const headers = { 'content-type': 'application/json' }
    const body = JSON.stringify({ checks: [{ key: 'a', exists: false }], ops: [{ op: 'put', key: 'a', value: '1' }] })
    for (const status of [200, 412])
      expect((await fetch(`${server.url}/v1/txn`, { method: 'POST', headers, body })).status).toBe(status)
    expect((await fetch(`${server.url}/v1/kv/a`)).status).toBe(200)
    expect((await fetch(`${server.url}/v1/kv`)).status).toBe(200)
    expect((await fetch(`${server.url}/openapi.json`)).status).toBe(200)
    expect(await server.stop('SIGTERM')).toEqual({ code: 0, signal: null })

    const loaded: string[] = JSON.parse(await readFile(list, 'utf8'))
    const packages = new Set(loaded.filter((path) => path.includes('node_modules/')).map(packageOf))
    expect([...packages].filter((name) => !PACKAGES.includes(name))).toEqual([])
  }),
)
