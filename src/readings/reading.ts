import { bucketsOf, maxOf, quantileBetween, type Samples, sumOf } from './metrics-text.js'

/** The fields of `GET /v1/status` that are read here. */
interface ReadStatus {
  readonly observers: { readonly lag_ms: number }
  readonly feed: { readonly lag_ms: number }
  readonly counts: { readonly locks?: number; readonly open_transactions: number }
  readonly overload: { readonly requests: number; readonly loop_delay_ms: number }
}

/** What a server said of itself at one moment, in `/v1/status` and `/metrics`. */
export interface Reading<S extends ReadStatus = ReadStatus> {
  /** Unix seconds. */
  readonly at: number
  readonly status: S
  /** undefined when the server has no /metrics, or the token may not read them. */
  readonly metrics: Samples | undefined
  /** Milliseconds from here to the server and back. */
  readonly tripMs: number
}

/** A line of a chart: its value between two readings; undefined: nothing to draw. */
interface Line {
  readonly label: string
  /** The line needs /metrics. */
  readonly isMetric?: true
  readonly of: (before: Reading, now: Reading) => number | undefined
}

export interface ChartPlan {
  readonly title: string
  readonly unit: 'ms' | '/s' | 'MB' | 'GB' | '%' | ''
  readonly lines: readonly Line[]
}

const DURATION = 'perkv_http_request_duration_seconds'

function rate(name: string, labels?: Readonly<Record<string, string>>): Line['of'] {
  return (before, now) => {
    if (before.metrics === undefined || now.metrics === undefined) return undefined
    // A counter that was never incremented has no sample.
    const [from = 0, to = 0] = [before.metrics, now.metrics].map((metrics) => sumOf(metrics, name, labels))
    return Math.max(0, to - from) / (now.at - before.at)
  }
}

function latencyMs(quantile: number): Line['of'] {
  return (before, now) => {
    if (before.metrics === undefined || now.metrics === undefined) return undefined
    const seconds = quantileBetween(bucketsOf(before.metrics, DURATION), bucketsOf(now.metrics, DURATION), quantile)
    return seconds === undefined ? undefined : seconds * 1000
  }
}

/** Charts from /metrics. */
const RATES: readonly ChartPlan[] = [
  {
    title: 'Requests',
    unit: '/s',
    lines: [
      { label: 'answered', of: rate(`${DURATION}_count`) },
      { label: 'problems', of: rate('perkv_http_problems_total') },
    ],
  },
  {
    title: 'Commits',
    unit: '/s',
    lines: [
      { label: 'one phase', of: rate('perkv_commits_total', { kind: '1pc' }) },
      { label: 'two phases', of: rate('perkv_commits_total', { kind: '2pc' }) },
      { label: 'async', of: rate('perkv_commits_total', { kind: 'async' }) },
      { label: 'conflicts', of: rate('perkv_write_conflicts_total') },
    ],
  },
  {
    title: 'Latency',
    unit: 'ms',
    lines: [
      { label: 'median', of: latencyMs(0.5) },
      { label: '99 %', of: latencyMs(0.99) },
    ],
  },
]

/** Charts of the process and its machine, from /metrics. */
const MACHINE: readonly ChartPlan[] = [
  {
    title: 'Processor',
    unit: '%',
    // Of one core: over 100 where the engine's threads work too.
    lines: [{ label: 'used', of: (before, now) => percent(rate('process_cpu_seconds_total')(before, now)) }],
  },
  {
    title: 'Memory',
    unit: 'MB',
    lines: [
      { label: 'resident', of: size('process_resident_memory_bytes', 1e6) },
      { label: 'heap', of: size('nodejs_heap_size_used_bytes', 1e6) },
      { label: 'cache', of: size('perkv_version_cache_bytes', 1e6) },
    ],
  },
  {
    title: 'Disk',
    unit: 'GB',
    lines: [
      { label: 'free', of: size('perkv_disk_free_bytes', 1e9) },
      { label: 'in use', of: diskUsed },
      { label: 'by this store', of: size('perkv_store_bytes', 1e9) },
    ],
  },
]

function percent(share: number | undefined): number | undefined {
  return share === undefined ? undefined : share * 100
}

function size(name: string, unit: number): Line['of'] {
  return (_, { metrics }) => {
    const bytes = metrics && sumOf(metrics, name)
    return bytes === undefined ? undefined : bytes / unit
  }
}

function diskUsed(before: Reading, now: Reading): number | undefined {
  const [all, free] = ['perkv_disk_size_bytes', 'perkv_disk_free_bytes'].map((name) => size(name, 1e9)(before, now))
  return all === undefined || free === undefined ? undefined : all - free
}

/** Charts from /v1/status. */
const STATES: readonly ChartPlan[] = [
  {
    title: 'Event loop',
    unit: 'ms',
    lines: [
      { label: 'delay', of: (_, { status }) => status.overload.loop_delay_ms },
      { label: 'round trip', of: (_, { tripMs }) => tripMs },
    ],
  },
  {
    title: 'Work',
    unit: '',
    lines: [
      { label: 'in flight', of: (_, { status }) => status.overload.requests },
      { label: 'locks', of: (_, { status }) => status.counts.locks },
      { label: 'waiting', isMetric: true, of: (_, { metrics }) => metrics && sumOf(metrics, 'perkv_lock_waiters') },
      { label: 'open transactions', of: (_, { status }) => status.counts.open_transactions },
    ],
  },
  {
    title: 'Lag',
    unit: 'ms',
    lines: [
      { label: 'feed', of: (_, { status }) => status.feed.lag_ms },
      { label: 'observers', of: (_, { status }) => status.observers.lag_ms },
      {
        label: 'consumers',
        isMetric: true,
        of: (_, { metrics }) => {
          const seconds = metrics && maxOf(metrics, 'perkv_consumer_lag_seconds')
          return seconds === undefined ? undefined : seconds * 1000
        },
      },
    ],
  },
]

export function plansFor(reading: Reading): readonly ChartPlan[] {
  const hasCounts = reading.metrics?.has(`${DURATION}_count`) || reading.metrics?.has('perkv_commits_total')
  // A store that is shared, or in memory, has no disk of its own.
  const machine = MACHINE.filter(({ title }) => title !== 'Disk' || reading.metrics?.has('perkv_disk_free_bytes'))
  if (hasCounts) return [...RATES, ...STATES, ...machine]
  return STATES.map((plan) => ({ ...plan, lines: plan.lines.filter(({ isMetric }) => isMetric !== true) }))
}

export function columnsOf({ lines }: ChartPlan, readings: readonly Reading[]): (number | null)[][] {
  const pairs = readings.slice(1).map((now, i) => [readings[i] as Reading, now] as const)
  return [
    pairs.map(([, { at }]) => at),
    ...lines.map(({ of }) => pairs.map(([before, now]) => of(before, now) ?? null)),
  ]
}
