import { afterAll, test } from 'vitest'
import { Random } from '../anomalies/random.js'
import { settings } from '../anomalies/settings.js'
import { killAll } from '../process/server-process.js'
import { Cluster, COLLECTING } from './cluster.js'
import { clusterLeases } from './cluster-leases.js'
import { startEmulator } from './emulator/emulator.mjs'

afterAll(killAll)

/** See test/anomalies/settings.ts for the long form. */
const SETTINGS = settings({ seed: 1, txns: 30, kills: 3 })

const SERVERS = 3
const FAULTS = { failBefore: 0.02, failAfter: 0.02, late: 0.01 }

test('holders at three servers, which are killed and stopped, never commit after the next grant', {
  tags: ['long'],
  timeout: 600_000,
}, async () => {
  const random = new Random(SETTINGS.seed)
  const emulator = await startEmulator(FAULTS)
  try {
    const cluster = await Cluster.start(emulator.host, SERVERS, random.fork(), COLLECTING)
    await clusterLeases(cluster, { ...SETTINGS, random })
  } finally {
    await emulator.stop()
  }
})
