import { afterAll, test } from 'vitest'
import { Random } from '../anomalies/random.js'
import { settings } from '../anomalies/settings.js'
import { killAll } from '../process/server-process.js'
import { Cluster, COLLECTING } from './cluster.js'
import { clusterObservers } from './cluster-observers.js'
import { startEmulator } from './emulator/emulator.mjs'

afterAll(killAll)

/** See test/anomalies/settings.ts for the long form. */
const SETTINGS = settings({ seed: 1, txns: 200, kills: 3 })

const SERVERS = 3
const FAULTS = { failBefore: 0.01, failAfter: 0.01, late: 0.005 }

test('an index of words by workers of three servers, which are killed and stopped', {
  tags: ['long'],
  timeout: 300_000,
}, async () => {
  const random = new Random(SETTINGS.seed)
  const emulator = await startEmulator(FAULTS)
  try {
    const cluster = await Cluster.start(emulator.host, SERVERS, random.fork(), COLLECTING)
    await clusterObservers(cluster, { ...SETTINGS, random })
  } finally {
    await emulator.stop()
  }
})
