// A worker: the Db of a directory in its process, or of the server at a URL.
import { connect, open } from 'perkv'
import { inLanes } from '../../harness/load.mjs'
import { fresh, keyOf, random, valueAt } from '../../harness/payload.mjs'
import { answerCalls } from '../../harness/worker.mjs'

const [where] = process.argv.slice(2)
const db = where.startsWith('http') ? connect(where) : await open(where)

answerCalls({
  async fill(count) {
    await db.transaction(async (txn) => {
      for (let n = 0; n < count; n++) await txn.put(keyOf(n), valueAt(n))
    })
  },
  get: (seconds, inFlight, keys) => inLanes(inFlight, seconds, () => db.get(keyOf(random(keys)))),
  put: (seconds, inFlight) =>
    inLanes(inFlight, seconds, () => {
      const { key, value } = fresh()
      return db.put(key, value)
    }),
  txn: (seconds, inFlight, keys) =>
    inLanes(inFlight, seconds, () =>
      db.transaction(async (txn) => {
        if ((await txn.get(keyOf(random(keys)))) === undefined) throw new Error('a key is missing')
        for (const { key, value } of [fresh(), fresh()]) await txn.put(key, value)
      }),
    ),
})
