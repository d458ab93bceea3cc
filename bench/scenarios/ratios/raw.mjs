// A worker: LevelDB in its process, without HTTP.
import { ClassicLevel } from 'classic-level'
import { inLanes, repeat } from '../../harness/load.mjs'
import { fresh, freshMany, keyOf, random, valueAt } from '../../harness/payload.mjs'
import { answerCalls } from '../../harness/worker.mjs'

const BATCH = 1000
const db = new ClassicLevel(process.argv[2], { keyEncoding: 'buffer', valueEncoding: 'buffer' })

const write = (pairs) =>
  db.batch(
    pairs.map(({ key, value }) => ({ type: 'put', key: Buffer.from(key), value: Buffer.from(value) })),
    { sync: true },
  )

answerCalls({
  async fill(count) {
    const pair = (n) => ({ key: keyOf(n), value: valueAt(n) })
    for (let at = 0; at < count; at += BATCH) await write(Array.from({ length: BATCH }, (_, n) => pair(at + n)))
  },
  get: (seconds, inFlight, keys) => inLanes(inFlight, seconds, () => db.get(Buffer.from(keyOf(random(keys))))),
  put: (seconds, inFlight) => inLanes(inFlight, seconds, () => write([fresh()])),
  /** A read and a durable batch of two. Nobody looks for conflicts. */
  txn: (seconds, inFlight, keys) =>
    inLanes(inFlight, seconds, async () => {
      await db.get(Buffer.from(keyOf(random(keys))))
      await write([fresh(), fresh()])
    }),
  /** Pairs a second of scans over everything. */
  scan: (seconds) =>
    repeat(seconds, async () => {
      const iterator = db.iterator()
      let pairs = 0
      for (let entries; entries?.length !== 0; pairs += entries.length) entries = await iterator.nextv(1000)
      await iterator.close()
      return pairs
    }),
  /** Keys a second of durable batches. */
  bulk(seconds) {
    let pairs = freshMany(BATCH)
    return repeat(seconds, async () => {
      const written = write(pairs)
      pairs = freshMany(BATCH) // Meanwhile: making them up is not what is measured.
      await written
      return BATCH
    })
  },
})
