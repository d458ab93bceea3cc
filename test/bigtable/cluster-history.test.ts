import { afterAll, test } from 'vitest'
import { Random } from '../anomalies/random.js'
import { settings } from '../anomalies/settings.js'
import { killAll } from '../process/server-process.js'
import { Cluster, type ClusterOptions, COLLECTING } from './cluster.js'
import { clusterHistory } from './cluster-history.js'
import { startEmulator } from './emulator/emulator.mjs'

afterAll(killAll)

/** See test/anomalies/settings.ts for the long form. */
const SETTINGS = settings({
  seed: 1,
  ...(process.env['PERKV_TEST_LONG'] ? { txns: 200, kills: 3 } : { txns: 100, kills: 2 }),
})

const SERVERS = 3
const FAULTS = { failBefore: 0.02, failAfter: 0.02, late: 0.01 }

async function history(options: ClusterOptions): Promise<void> {
  const random = new Random(SETTINGS.seed)
  const emulator = await startEmulator(FAULTS)
  try {
    const cluster = await Cluster.start(emulator.host, SERVERS, random.fork(), options)
    await clusterHistory(cluster, { ...SETTINGS, random, isCollecting: options === COLLECTING })
  } finally {
    await emulator.stop()
  }
}

const WHAT = 'three servers on one table, which are killed and stopped, whose calls fail: one history'
test(WHAT, { timeout: 600_000 }, () => history({}))
test(`${WHAT}, while old versions are collected`, { tags: ['long'], timeout: 600_000 }, () => history(COLLECTING))
