import { afterAll, expect, test } from 'vitest'
import { post, scanPairs } from '../anomalies/http-transaction.js'
import { Random } from '../anomalies/random.js'
import { report, settings } from '../anomalies/settings.js'
import { killAll } from '../process/server-process.js'
import { Cluster } from './cluster.js'
import { startEmulator } from './emulator/emulator.mjs'

afterAll(killAll)

const { seed, txns } = settings({ seed: 1, txns: 200, kills: 0 })
const SERVERS = 3
const WRITERS = 4
const READERS = 8
const KEYS = 4
/** Added to each call to the table, so that a commit takes long enough for a reader to pass between its steps. */
const DELAY_MS = 3

/** Readers look through one server while writers commit through others; each snapshot is looked at again when all is over. */
test('a snapshot of one server stays as it is while others commit', { tags: ['long'], timeout: 300_000 }, async () => {
  const random = new Random(seed)
  const emulator = await startEmulator({ delayMs: DELAY_MS })
  const cluster = await Cluster.start(emulator.host, SERVERS, random.fork())
  const snapshots: { ts: number; pairs: ReadonlyMap<string, string> }[] = []
  const look = (ts: number): Promise<Map<string, string>> =>
    scanPairs(`${cluster.url}/v1/kv`, { prefix: 's/', ts: String(ts) })
  let left = txns
  let writing = WRITERS
  const write = async (_: unknown, writer: number): Promise<void> => {
    try {
      for (let n = 0; left-- > 0; n++) {
        // All its keys in one transaction, so that a snapshot with two values of a writer is wrong as well.
        const value = `${writer}-${n}`
        const ops = Array.from({ length: KEYS }, (_, i) => ({ op: 'put', key: `s/${writer}/${i}`, value }))
        await post(`${cluster.url}/v1/txn`, { ops })
      }
    } finally {
      writing--
    }
  }
  const read = async (): Promise<void> => {
    while (writing > 0) {
      const { ts } = await post<{ ts: number }>(`${cluster.url}/v1/percolator/tso`)
      snapshots.push({ ts, pairs: await look(ts) })
    }
  }
  try {
    await Promise.all([...Array.from({ length: WRITERS }, write), ...Array.from({ length: READERS }, read)])
    report({ test: 'cluster-snapshots', seed, txns, snapshots: snapshots.length })
    const wrong: string[] = []
    for (const { ts, pairs } of snapshots) {
      const [writers, values] = [[...pairs.keys()].map((key) => key.split('/')[1]), pairs.values()]
      if (new Set(values).size > new Set(writers).size)
        wrong.push(`the snapshot at ${ts} shows a part of a transaction`)
      const again = await look(ts)
      if (JSON.stringify([...again]) !== JSON.stringify([...pairs])) wrong.push(`the snapshot at ${ts} has changed`)
    }
    expect(wrong).toEqual([])
    expect(snapshots.length).toBeGreaterThan(txns / 2)
  } finally {
    await cluster.end()
    await emulator.stop()
  }
})
