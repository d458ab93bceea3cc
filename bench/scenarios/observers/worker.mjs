// A worker: works for the observers of a server, or rebuilds an index.
import { connect } from 'perkv/client'
import { INDEX_PREFIXES } from '../../../docs/examples/index/derived.mjs'
import { keepIndex } from '../../../docs/examples/index/observers.mjs'
import { rebuild } from '../../../docs/examples/index/rebuild.mjs'
import { answerCalls } from '../../harness/worker.mjs'

const WRITES_PER_TXN = 1000
const TXNS_AT_ONCE = 4

const [url] = process.argv.slice(2)
const db = connect(url)
let stop
let working

answerCalls({
  /** Keeps the index of the example, until `stop`. */
  async keepIndex() {
    stop = new AbortController()
    working = keepIndex(db, { signal: stop.signal })
    working.catch(failed)
  },
  /** Puts one key per change, until `stop`. */
  async observe(name, prefix, out, options) {
    stop = new AbortController()
    const target = (key) => out + key.slice(prefix.length)
    const run = async (txn, change) => {
      for (const { key } of Array.isArray(change) ? change : [change]) await txn.put(target(key), 'done')
    }
    working = db.observe(name, { prefix }, run, { ...options, signal: stop.signal })
    working.catch(failed)
  },
  async stop() {
    stop.abort()
    await working
  },
  /** Makes the index again below a prefix. */
  async rebuild(generation) {
    await writeAll([...rebuild(await pairsOf('doc/'))].map(([key, value]) => [generation + key, value]))
  },
  /** Makes the index again in memory, reads the one that is there, and writes the differences. */
  async difference() {
    const wanted = rebuild(await pairsOf('doc/'))
    const writes = []
    for (const prefix of INDEX_PREFIXES)
      for await (const { key, value } of db.scan({ prefix })) {
        if (wanted.get(key) !== value) writes.push([key, wanted.get(key)])
        wanted.delete(key)
      }
    await writeAll([...writes, ...wanted])
  },
})

async function pairsOf(prefix) {
  const pairs = []
  for await (const { key, value } of db.scan({ prefix })) pairs.push([key.slice(prefix.length), value])
  return pairs
}

async function writeAll(writes) {
  let next = 0
  const lane = async () => {
    while (next < writes.length) {
      const some = writes.slice(next, next + WRITES_PER_TXN)
      next += some.length
      await db.transaction(async (txn) => {
        for (const [key, value] of some) await (value === undefined ? txn.delete(key) : txn.put(key, value))
      })
    }
  }
  await Promise.all(Array.from({ length: TXNS_AT_ONCE }, lane))
}

function failed(error) {
  console.error(error)
  process.exit(1)
}
