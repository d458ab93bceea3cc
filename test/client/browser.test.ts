import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { testServers } from '../http/support.js'

/** The built client as a browser gets it; `npm test` builds it first. */

const start = testServers()
const INDEX = new URL('../../dist/client/index.js', import.meta.url)
const PACKAGES = ['msgpackr']

/** Every module that the client is made of, and every package that it names. */
async function importGraph(entry: URL): Promise<{ files: Set<string>; packages: Set<string> }> {
  const files = new Set<string>()
  const packages = new Set<string>()
  const visit = async (url: URL): Promise<void> => {
    if (files.has(url.href)) return
    files.add(url.href)
    const source = await readFile(url, 'utf8')
    for (const [, specifier = ''] of source.matchAll(
      /^(?:(?:import|export)\b[^'"`;]*?\bfrom|import) *['"]([^'"]+)['"]/gm,
    )) {
      if (specifier.startsWith('.')) await visit(new URL(specifier, url))
      else packages.add(specifier)
    }
    expect(source, url.href).not.toMatch(/\bimport\(|\brequire\(/)
  }
  await visit(entry)
  return { files, packages }
}

test('imports nothing of Node, and nothing of the server', async () => {
  const { files, packages } = await importGraph(INDEX)
  expect([...packages]).toEqual(PACKAGES)
  expect(files.size).toBeGreaterThan(20)
  const dist = new URL('../../dist/', import.meta.url).href
  // Of features only the rules, which are pure.
  const folderOf = (path: string) => /^\w+\/rules(?=\/)|^[^/]+/.exec(path)?.[0]
  const directories = new Set([...files].map((file) => folderOf(file.slice(dist.length))))
  expect([...directories].sort()).toEqual([
    'bytes',
    'changes/rules',
    'client',
    'coordinator',
    'errors',
    'event-loop',
    'leases/rules',
    'limits.js',
    'percolator',
    'timestamp.js',
  ])
})

/**
 * A page: no Buffer, no process, packages as bundlers resolve them for browsers. Its network is node:http, because Node's
 * own fetch needs the global Buffer.
 */
const PAGE = `
import { request } from 'node:http'
const { log } = console
const { argv, exit } = process
function fetch(url, { method, headers, body, signal }) {
  return new Promise((resolve, reject) => {
    const sent = request(url, { method, headers }, (answer) => {
      const { statusCode: status, headers } = answer
      const chunks = []
      answer.on('data', (chunk) => chunks.push(chunk))
      answer.on('end', () => {
        const arrayBuffer = () => new Blob(chunks).arrayBuffer()
        resolve({ status, headers: new Map(Object.entries(headers)), arrayBuffer })
      })
    })
    sent.on('error', reject)
    signal?.addEventListener('abort', () => sent.destroy(signal.reason))
    sent.end(body)
  })
}
delete globalThis.Buffer
delete globalThis.process
globalThis.fetch = fetch
const { connect, KvError } = await import(argv[1])
const db = connect(argv[2])
await db.put('k', new Uint8Array([0, 255]))
const answers = [Array.from(await db.get('k', { as: 'bytes' }))]
const bob = await db.transaction(async (txn) => {
  await txn.put('Bob', 'Zürich 🦀')
  await txn.increment('n', 2)
  return txn.get('Bob')
}, { mode: 'pessimistic', isolation: 'serializable' })
answers.push(bob)
for await (const { key, value } of db.scan({ start: 'B', end: 'C' })) answers.push(key + '=' + value)
const call = async (name, body) => {
  const headers = { 'content-type': 'application/json' }
  const answer = await fetch(argv[2] + '/v1/percolator/' + name, { method: 'POST', headers, body: JSON.stringify(body) })
  return JSON.parse(new TextDecoder().decode(await answer.arrayBuffer()))
}
const { ts } = await call('tso', {})
const mutations = ['dead1', 'dead2'].map((key) => ({ op: 'put', key, value: 'x' }))
await call('prewrite', { mutations, primary: 'dead1', start_ts: ts, lock_ttl: 1 })
await db.transaction(async (txn) => answers.push((await txn.get('dead2')) ?? 'rolled back'))
await db.put('k', 'x', { ifAbsent: true }).catch((error) => answers.push(error instanceof KvError, error.code))
await db.observers.put('words', { prefix: 'doc/' })
await db.put('doc/1', 'Zürich')
const stop = new AbortController()
await db.observe('words', { prefix: 'doc/' }, (txn, change) => {
  answers.push(change.key + '=' + change.value)
  stop.abort()
  return txn.put('seen', change.key)
}, { signal: stop.signal })
const { position } = await db.consumers.put('copy', { prefix: 'doc/' })
await db.transaction(() => {}, { positions: [{ consumer: 'copy', from: position, ts: position }] })
await db.close()
answers.push(typeof Buffer, typeof process)
log(JSON.stringify(answers))
exit(0)
`

test('runs without Buffer and process', { tags: ['long'] }, async () => {
  const server = await start()
  const url = `http://127.0.0.1:${await server.listen()}`
  const flags = ['--conditions=browser', '--input-type=module', '--eval', PAGE]
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [...flags, INDEX.href, url], {
    timeout: 50_000,
  })
  expect(stderr).toBe('')
  expect(JSON.parse(stdout)).toEqual([
    [0, 255],
    'Zürich 🦀',
    'Bob=Zürich 🦀',
    'rolled back',
    true,
    'precondition_failed',
    'doc/1=Zürich',
    'undefined',
    'undefined',
  ])
})

test('msgpackr has a browser build without Node’s modules', { tags: ['long'] }, async () => {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--conditions=browser', '--input-type=module', '--eval', 'console.log(import.meta.resolve("msgpackr"))'],
    { cwd: fileURLToPath(new URL('../..', import.meta.url)) },
  )
  const { packages } = await importGraph(new URL(stdout.trim()))
  expect([...packages]).toEqual([])
})
