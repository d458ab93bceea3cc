import { readdir, readFile } from 'node:fs/promises'
import { constants, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks'
import { getHeapSpaceStatistics, type HeapSpaceInfo } from 'node:v8'
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

/** @returns durations of the garbage collections from now on, by kind. */
export function measureGc(): ReadonlyMap<string, Histogram> {
  const durations = new Map(Object.values(GC_KINDS).map((kind) => [kind, new Histogram(GC_SECONDS)]))
  new PerformanceObserver((list) => {
    for (const { detail, duration } of list.getEntries() as GcEntry[])
      durations.get(GC_KINDS[detail.kind] ?? '')?.observe(duration / 1000)
  }).observe({ entryTypes: ['gc'] })
  return durations
}

/**
 * Metrics of the process and of Node, with the names, help texts and buckets of prom-client, which dashboards know. Two of its
 * families are left out: `nodejs_active_*` walks over all connections, and `nodejs_eventloop_lag_*` wakes an idle process.
 */
export async function ofProcess(gc: ReadonlyMap<string, Histogram>): Promise<Family[]> {
  const { user, system } = process.cpuUsage()
  const memory = process.memoryUsage()
  const [files, status, limits] = await Promise.all([
    readdir('/proc/self/fd').catch(() => undefined),
    readFile('/proc/self/status', 'utf8').catch(() => ''),
    readFile('/proc/self/limits', 'utf8').catch(() => ''),
  ])
  return [
    counter('process_cpu_user_seconds_total', 'Total user CPU time spent in seconds.', user / 1e6),
    counter('process_cpu_system_seconds_total', 'Total system CPU time spent in seconds.', system / 1e6),
    counter('process_cpu_seconds_total', 'Total user and system CPU time spent in seconds.', (user + system) / 1e6),
    // Listing the descriptors opens one.
    ...known('process_open_fds', 'Number of open file descriptors.', files && Math.max(0, files.length - 1)),
    histogram(
      'nodejs_gc_duration_seconds',
      'Garbage collection duration by kind, one of major, minor, incremental or weakcb.',
      [...gc].map(([kind, durations]) => [{ kind }, durations]),
    ),
    gauge('process_start_time_seconds', 'Start time of the process since unix epoch in seconds.', STARTED_AT_S),
    gauge('process_resident_memory_bytes', 'Resident memory size in bytes.', memory.rss),
    ...known('process_virtual_memory_bytes', 'Virtual memory size in bytes.', bytesIn(status, 'VmSize')),
    ...known('process_heap_bytes', 'Process heap size in bytes.', bytesIn(status, 'VmData')),
    ...known('process_max_fds', 'Maximum number of open file descriptors.', numberAfter(limits, 'Max open files')),
    gauge('nodejs_heap_size_total_bytes', 'Process heap size from Node.js in bytes.', memory.heapTotal),
    gauge('nodejs_heap_size_used_bytes', 'Process heap size used from Node.js in bytes.', memory.heapUsed),
    gauge('nodejs_external_memory_bytes', 'Node.js external memory size in bytes.', memory.external),
    ...ofHeapSpaces(),
    gauge('nodejs_version_info', 'Node.js version info.', [[VERSION, 1]]),
  ]
}

const STARTED_AT_S = Math.round(Date.now() / 1000 - process.uptime())
const [major = '', minor = '', patch = ''] = process.versions.node.split('.')
const VERSION = { version: process.version, major, minor, patch }

/** A gauge where the system tells the value, as Linux does. */
function known(name: string, help: string, value: number | undefined): Family[] {
  return value === undefined ? [] : [gauge(name, help, value)]
}

/** @param status the text of `/proc/self/status`, with lines such as `VmSize:  123 kB`. */
function bytesIn(status: string, name: string): number | undefined {
  const kib = numberAfter(status, `${name}:`)
  return kib === undefined ? undefined : kib * 1024
}

/** @returns the number that follows `name` at the start of a line; undefined for `unlimited`. */
function numberAfter(text: string, name: string): number | undefined {
  const digits = new RegExp(`^${name}\\s+(\\d+)`, 'm').exec(text)?.[1]
  return digits === undefined ? undefined : Number(digits)
}

function ofHeapSpaces(): Family[] {
  const spaces = getHeapSpaceStatistics()
  const per = (kind: string, of: (space: HeapSpaceInfo) => number): Family =>
    gauge(
      `nodejs_heap_space_size_${kind}_bytes`,
      `Process heap space size ${kind} from Node.js in bytes.`,
      spaces.map((space) => [{ space: space.space_name.replace(/_space$/, '') }, of(space)] as const),
    )
  return [
    per('total', (space) => space.space_size),
    per('used', (space) => space.space_used_size),
    per('available', (space) => space.space_available_size),
  ]
}
