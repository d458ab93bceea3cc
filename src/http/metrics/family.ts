import type { Histogram } from '../../meters/histogram.js'

export type Labels = Readonly<Record<string, string | number>>

interface Sample {
  readonly labels: Labels
  readonly value: number
  /** For parts of a histogram: the name of the family with `_bucket`, `_sum` or `_count`. */
  readonly metricName?: string
}

export interface Family {
  readonly name: string
  readonly help: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  /** Generated while they are written. The samples of one histogram are of one moment. */
  readonly values: Iterable<Sample>
}

/** A value, or one value per set of labels. */
type Values = number | Iterable<readonly [Labels, number]>

const NONE: Labels = {}

export function counter(name: string, help: string, values: Values): Family {
  return { name, help, type: 'counter', values: samplesOf(values) }
}

export function gauge(name: string, help: string, values: Values): Family {
  return { name, help, type: 'gauge', values: samplesOf(values) }
}

function* samplesOf(values: Values): Generator<Sample, void> {
  if (typeof values === 'number') return yield { labels: NONE, value: values }
  for (const [labels, value] of values) yield { labels, value }
}

export function histogram(name: string, help: string, all: Histogram | Iterable<readonly [Labels, Histogram]>): Family {
  const each = Symbol.iterator in all ? all : [[NONE, all] as const]
  return { name, help, type: 'histogram', values: samplesOfAll(name, each) }
}

function* samplesOfAll(name: string, all: Iterable<readonly [Labels, Histogram]>): Generator<Sample, void> {
  for (const [labels, of] of all) yield* histogramSamples(name, labels, of)
}

function histogramSamples(name: string, labels: Labels, { bounds, counts, sum }: Histogram): Sample[] {
  const samples: Sample[] = []
  let count = 0
  for (const [i, bound] of bounds.entries()) {
    count += counts[i] ?? 0
    samples.push({ metricName: `${name}_bucket`, labels: { ...labels, le: bound }, value: count })
  }
  count += counts[bounds.length] ?? 0
  samples.push({ metricName: `${name}_bucket`, labels: { ...labels, le: '+Inf' }, value: count })
  samples.push({ metricName: `${name}_sum`, labels, value: sum })
  samples.push({ metricName: `${name}_count`, labels, value: count })
  return samples
}
