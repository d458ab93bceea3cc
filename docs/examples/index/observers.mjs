/**
 * The three observers that keep the index up to date. Each run is a transaction that also acknowledges its change, so the index
 * has each document exactly once, whichever worker dies.
 *
 *   doc/DOC changes    -> parse    writes word/, anchor/, hash/, at/ and derived/ of the document
 *   parse notifies     -> counts   count/ADDRESS: how many documents link there
 *   both notify        -> cluster  cluster/HASH: the canonical one of equal documents
 *
 * Hundreds of documents may link to one address, or be equal. If `parse` wrote `count/ADDRESS` itself, those that run at the same
 * time would conflict there. A notification never conflicts, and any number of them are covered by one run.
 */
import { clusterValue } from './canonical.mjs'
import { decodeStems, encodeStems, notificationsOf, stemsOf, writesOf } from './derived.mjs'
import { addressOf } from './text.mjs'

/**
 * @typedef {import('perkv/client').Db} Db
 * @typedef {import('perkv/client').Txn} Txn
 * @typedef {{ readonly key: string, readonly value: string | undefined }} Change
 */

/** A run takes milliseconds, and what a killed worker had begun waits so long. */
const LEASE_MS = 5000

/** Name, range and function of each. */
export const OBSERVERS = /** @type {const} */ ([
  ['parse', 'doc/', parse],
  ['counts', 'count/', counts],
  ['cluster', 'cluster/', cluster],
])

/** A document was put, changed or deleted. @param {Txn} txn @param {Change} change */
export async function parse(txn, { key, value }) {
  const name = key.slice('doc/'.length)
  const before = decodeStems(await txn.get(`derived/${name}`))
  const after = stemsOf(name, value)
  const { puts, deletes } = writesOf(name, before, after)
  if (puts.length + deletes.length === 0) return
  for (const [index, entry] of puts) await txn.put(index, entry)
  for (const index of deletes) await txn.delete(index)
  if (value === undefined) await txn.delete(`derived/${name}`)
  else await txn.put(`derived/${name}`, encodeStems(after))
  const cells = notificationsOf(before, after)
  if (cells.counts.length > 0) await txn.notify('counts', ...cells.counts)
  if (cells.cluster.length > 0) await txn.notify('cluster', ...cells.cluster)
}

/** The links to an address changed, or the documents that stand there. @param {Txn} txn @param {Change} change */
export async function counts(txn, { key, value }) {
  const address = key.slice('count/'.length)
  let anchors = 0
  for await (const _ of txn.scan({ prefix: `anchor/${address}/`, keysOnly: true })) anchors++
  // A write to the key of the run's own change does not start the observer again.
  if (anchors === 0) await txn.delete(key)
  else if (String(anchors) !== value) await txn.put(key, String(anchors))
  const hashes = new Set()
  for await (const { value: hash } of txn.scan({ prefix: `at/${address}/` })) hashes.add(`cluster/${hash}`)
  if (hashes.size > 0) await txn.notify('cluster', ...hashes)
}

/** The documents of a cluster changed, or the anchors of one. @param {Txn} txn @param {Change} change */
export async function cluster(txn, { key, value }) {
  const hash = key.slice('cluster/'.length)
  const names = []
  for await (const member of txn.scan({ prefix: `hash/${hash}/`, keysOnly: true }))
    names.push(member.key.slice(`hash/${hash}/`.length))
  const found = await txn.batchGet(names.map((name) => `count/${addressOf(name)}`))
  const now = clusterValue(names.map((name, i) => ({ name, anchors: Number(found[i] ?? 0) })))
  if (now === undefined) await txn.delete(key)
  else if (now !== value) await txn.put(key, now)
}

/** All three have to be known before the first run notifies the next. @param {Db} db */
export async function register(db) {
  for (const [name, prefix] of OBSERVERS) await db.observers.put(name, { prefix })
}

/**
 * Works until the signal stops it. Any number of processes may do the same at once.
 * @param {Db} db @param {{ signal: AbortSignal, onError?: (error: unknown) => void }} options
 */
export async function keepIndex(db, options) {
  const all = { ...options, concurrency: 8, leaseMs: LEASE_MS }
  await Promise.all(OBSERVERS.map(([name, prefix, run]) => db.observe(name, { prefix }, run, all)))
}

/**
 * @param {Db} db @returns {Promise<Record<string, number>>} how many changes each observer has yet to run
 * @throws Error when one of them failed so often that it was put aside
 */
export async function pending(db) {
  const ours = (await db.observers.list()).filter(({ name }) => OBSERVERS.some(([one]) => one === name))
  for (const { name, parked } of ours.filter(({ parked }) => parked > 0))
    for await (const { key, error } of db.observers.parked(name))
      throw new Error(`${name} has parked ${parked} changes, such as ${key}: ${error}`)
  return Object.fromEntries(ours.map(({ name, pending }) => [name, pending]))
}
