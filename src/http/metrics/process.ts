import { readdir } from 'node:fs/promises'
import { constants, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks'
import { Histogram } from '../../meters/histogram.js'
import { counter, type Family, gauge, histogram } from './family.js'

const GC_SECONDS = [0.001, 0.01, 0.1, 1, 2, 5] as const
interface GcEntry extends PerformanceEntry {
  readonly detail: { readonly kind: number }
}
const GC_KINDS: Readonly<Record<number, string>> = {
  [constants.NODE_PERFORMANCE_GC_MAJOR]: 'major',
  [constants.NODE_PERFORMANCE_GC_MINOR]: 'minor',
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL]: 'incremental',
  [constants.NODE_PERFORMANCE_GC_WEAKCB]: 'weakcb',
}

/** Collections of Node's memory, by kind, from now on. */
export function measureGc(): ReadonlyMap<string, Histogram> {
  const durations = new Map(Object.values(GC_KINDS).map((kind) => [kind, new Histogram(GC_SECONDS)]))
  new PerformanceObserver((list) => {
    for (const { detail, duration } of list.getEntries() as GcEntry[])
      durations.get(GC_KINDS[detail.kind] ?? '')?.observe(duration / 1000)
  }).observe({ entryTypes: ['gc'] })
  return durations
}

/**
 * The metrics that prom-client would measure at a cost: processor time (it loads OpenTelemetry for it), file descriptors (it blocks
 * while it lists them), and Node's collections (of those of one turn it counts the first). Names and buckets are its own.
 */
export async function ofProcess(gc: ReadonlyMap<string, Histogram>): Promise<Family[]> {
  const { user, system } = process.cpuUsage()
  const files = await readdir('/proc/self/fd').catch(() => undefined)
  return [
    counter('process_cpu_user_seconds_total', 'Total user CPU time spent in seconds.', user / 1e6),
    counter('process_cpu_system_seconds_total', 'Total system CPU time spent in seconds.', system / 1e6),
    counter('process_cpu_seconds_total', 'Total user and system CPU time spent in seconds.', (user + system) / 1e6),
    // One of them is open for listing them.
    ...(files === undefined
      ? []
      : [gauge('process_open_fds', 'Number of open file descriptors.', Math.max(0, files.length - 1))]),
    histogram(
      'nodejs_gc_duration_seconds',
      'Garbage collection duration by kind, one of major, minor, incremental or weakcb.',
      [...gc].map(([kind, durations]) => [{ kind }, durations]),
    ),
  ]
}
