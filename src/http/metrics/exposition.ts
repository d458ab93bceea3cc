import type { Metric, Registry } from 'prom-client'
import { families, type Measured } from './families.js'

/** Ticks of Node's own histogram of delays: 20 per second, where the default wakes the process 100 times. */
const PRECISION_MS = 50

/** Loaded at the first scrape, as are the metrics of Node and the process. */
let loading: Promise<Registry> | undefined

export interface Exposition {
  readonly type: string
  readonly text: string
}

/** The metrics in Prometheus' text format 0.0.4. */
export async function exposition(measured: Measured): Promise<Exposition> {
  loading ??= load().catch((error) => {
    loading = undefined // The next scrape tries again.
    throw error
  })
  const ofProcess = await loading
  const { Registry } = (await import('prom-client')).default
  const registry = new Registry()
  for (const family of await families(measured)) {
    // A registry asks its metrics for their samples, whoever has counted them.
    const metric = { name: family.name, get: async () => family }
    registry.registerMetric(metric as unknown as Metric)
  }
  return { type: registry.contentType, text: `${await registry.metrics()}\n${await ofProcess.metrics()}` }
}

async function load(): Promise<Registry> {
  const { collectDefaultMetrics, Registry } = (await import('prom-client')).default
  const registry = new Registry()
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: PRECISION_MS })
  return registry
}
