/** One line of Prometheus' text format. */
interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

export type Samples = ReadonlyMap<string, readonly Sample[]>

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)(?: -?\d+)?$/
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g

/** Reads text format 0.0.4; unknown lines are ignored. */
export function parseMetrics(text: string): Samples {
  const samples = new Map<string, Sample[]>()
  for (const line of text.split('\n')) {
    const [, name, labels = '', number = ''] = LINE.exec(line) ?? []
    if (name === undefined) continue
    const pairs = [...labels.matchAll(LABEL)].map(([, label = '', value = '']) => [label, value])
    const sample = { labels: Object.fromEntries(pairs) as Record<string, string>, value: numberOf(number) }
    const family = samples.get(name)
    if (family === undefined) samples.set(name, [sample])
    else family.push(sample)
  }
  return samples
}

function numberOf(text: string): number {
  if (text === '+Inf') return Number.POSITIVE_INFINITY
  return text === '-Inf' ? Number.NEGATIVE_INFINITY : Number(text)
}

export function sumOf(
  samples: Samples,
  name: string,
  wanted: Readonly<Record<string, string>> = {},
): number | undefined {
  const family = samples.get(name)
  if (family === undefined) return undefined
  let sum = 0
  for (const { labels, value } of family)
    if (Object.entries(wanted).every(([label, text]) => labels[label] === text)) sum += value
  return sum
}

export function maxOf(samples: Samples, name: string): number | undefined {
  const family = samples.get(name)
  return family && Math.max(0, ...family.map(({ value }) => value))
}

export function bucketsOf(samples: Samples, name: string): ReadonlyMap<number, number> {
  const buckets = new Map<number, number>()
  for (const { labels, value } of samples.get(`${name}_bucket`) ?? []) {
    const bound = numberOf(labels['le'] ?? '')
    buckets.set(bound, (buckets.get(bound) ?? 0) + value)
  }
  return buckets
}

/**
 * The bound below which the share `quantile` of the observations between two readings lies, by interpolation; undefined without
 * observations.
 */
export function quantileBetween(
  before: ReadonlyMap<number, number>,
  now: ReadonlyMap<number, number>,
  quantile: number,
): number | undefined {
  const counts = [...now].map(([bound, count]) => ({ bound, count: count - (before.get(bound) ?? 0) }))
  counts.sort((a, b) => a.bound - b.bound)
  const total = counts.at(-1)?.count ?? 0
  if (!(total > 0)) return undefined
  const rank = quantile * total
  let low = { bound: 0, count: 0 }
  for (const bucket of counts) {
    if (bucket.count >= rank) {
      if (!Number.isFinite(bucket.bound)) return low.bound
      const share = bucket.count === low.count ? 1 : (rank - low.count) / (bucket.count - low.count)
      return low.bound + (bucket.bound - low.bound) * share
    }
    low = bucket
  }
  return low.bound
}
