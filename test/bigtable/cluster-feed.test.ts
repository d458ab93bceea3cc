import { afterAll, test } from 'vitest'
import { Random } from '../anomalies/random.js'
import { settings } from '../anomalies/settings.js'
import { killAll } from '../process/server-process.js'
import { Cluster, type ClusterOptions, COLLECTING } from './cluster.js'
import { clusterFeed } from './cluster-feed.js'
import { startEmulator } from './emulator/emulator.mjs'

afterAll(killAll)

/** See test/anomalies/settings.ts for the long form. */
const SETTINGS = settings({ seed: 1, txns: 0, kills: 1 })

const SERVERS = 3
const FAULTS = { failBefore: 0.01, failAfter: 0.01, late: 0.005 }

async function history(options: ClusterOptions): Promise<void> {
  const random = new Random(SETTINGS.seed)
  const emulator = await startEmulator(FAULTS)
  try {
    const cluster = await Cluster.start(emulator.host, SERVERS, random.fork(), options)
    await clusterFeed(cluster, { ...SETTINGS, random, isCollecting: options === COLLECTING })
  } finally {
    await emulator.stop()
  }
}

const WHAT =
  'three servers on one table, which are killed and stopped until their logs are ended: the feed is what they commit'
test(WHAT, { timeout: 600_000 }, () => history({}))
test(`${WHAT}, while old versions are collected`, { tags: ['long'], timeout: 600_000 }, () => history(COLLECTING))
