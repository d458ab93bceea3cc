// node bench/raw.mjs DIR, as a child with IPC: LevelDB in its process, without HTTP. In: `[work, ...arguments]`;
// out: its result.
import { ClassicLevel } from 'classic-level'
import { lanes } from './ratios/lanes.mjs'
import { fresh, freshMany, keyOf, random, valueAt } from './ratios/payload.mjs'

const BATCH = 1000
const db = new ClassicLevel(process.argv[2], { keyEncoding: 'buffer', valueEncoding: 'buffer' })

const works = {
  async fill(count) {
    for (let at = 0; at < count; at += BATCH) await write(Array.from({ length: BATCH }, (_, n) => pair(at + n)))
  },
  get: (seconds, inFlight, keys) => lanes(inFlight, seconds, () => db.get(Buffer.from(keyOf(random(keys))))),
  put: (seconds, inFlight) => lanes(inFlight, seconds, () => write([fresh()])),
  /** A read and a durable batch of two. Nobody looks for conflicts. */
  txn: (seconds, inFlight, keys) =>
    lanes(inFlight, seconds, async () => {
      await db.get(Buffer.from(keyOf(random(keys))))
      await write([fresh(), fresh()])
    }),
  /** Pairs a second of scans over everything. */
  async scan(seconds) {
    return rate(seconds, async () => {
      const iterator = db.iterator()
      let pairs = 0
      for (;;) {
        const entries = await iterator.nextv(1000)
        pairs += entries.length
        if (entries.length === 0) break
      }
      await iterator.close()
      return pairs
    })
  },
  /** Keys a second of durable batches. */
  async bulk(seconds) {
    let pairs = freshMany(BATCH)
    return rate(seconds, async () => {
      const written = write(pairs)
      pairs = freshMany(BATCH) // Meanwhile: making them up is not what is measured.
      await written
      return BATCH
    })
  },
}

const pair = (n) => ({ key: keyOf(n), value: valueAt(n) })

const write = (pairs) =>
  db.batch(
    pairs.map(({ key, value }) => ({ type: 'put', key: Buffer.from(key), value: Buffer.from(value) })),
    { sync: true },
  )

async function rate(seconds, run) {
  const begin = performance.now()
  let done = 0
  do done += await run()
  while (performance.now() < begin + seconds * 1000)
  return { rate: (done * 1000) / (performance.now() - begin) }
}

process.on('message', async ([work, ...args]) => process.send((await works[work](...args)) ?? {}))
process.on('disconnect', () => process.exit())
