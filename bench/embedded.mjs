// node bench/embedded.mjs WHERE, as a child with IPC: the Db of a directory in its process, or of the server at a URL.
// In: `[work, ...arguments]`; out: its result.
import { connect, open } from 'perkv'
import { lanes } from './ratios/lanes.mjs'
import { fresh, keyOf, random, valueAt } from './ratios/payload.mjs'

const [where] = process.argv.slice(2)
const db = where.startsWith('http') ? connect(where) : await open(where)

const works = {
  async fill(count) {
    await db.transaction(async (txn) => {
      for (let n = 0; n < count; n++) await txn.put(keyOf(n), valueAt(n))
    })
  },
  get: (seconds, inFlight, keys) => lanes(inFlight, seconds, () => db.get(keyOf(random(keys)))),
  put: (seconds, inFlight) =>
    lanes(inFlight, seconds, () => {
      const { key, value } = fresh()
      return db.put(key, value)
    }),
  txn: (seconds, inFlight, keys) =>
    lanes(inFlight, seconds, () =>
      db.transaction(async (txn) => {
        if ((await txn.get(keyOf(random(keys)))) === undefined) throw new Error('a key is missing')
        for (const { key, value } of [fresh(), fresh()]) await txn.put(key, value)
      }),
    ),
}

process.on('message', async ([work, ...args]) => process.send((await works[work](...args)) ?? {}))
process.on('disconnect', () => process.exit())
