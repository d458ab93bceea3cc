import type { Metric } from 'prom-client'
import { once } from '../../event-loop/once.js'
import { families, type Measured } from './families.js'

/** Ticks of Node's own histogram of delays: 20 per second, where the default wakes the process 100 times. */
const PRECISION_MS = 50

export interface Exposition {
  readonly type: string
  readonly text: string
}

/** prom-client, and what it knows of Node and the process. Loaded at the first scrape. */
const loaded = once(async () => {
  const { collectDefaultMetrics, Registry } = (await import('prom-client')).default
  const ofProcess = new Registry()
  collectDefaultMetrics({ register: ofProcess, eventLoopMonitoringPrecision: PRECISION_MS })
  return { Registry, ofProcess }
})

/** The metrics in Prometheus' text format 0.0.4. */
export async function exposition(measured: Measured): Promise<Exposition> {
  const { Registry, ofProcess } = await loaded()
  const registry = new Registry()
  for (const family of await families(measured)) {
    // A registry asks its metrics for their samples, whoever has counted them.
    const metric = { name: family.name, get: async () => family }
    registry.registerMetric(metric as unknown as Metric)
  }
  return { type: registry.contentType, text: `${await registry.metrics()}\n${await ofProcess.metrics()}` }
}
