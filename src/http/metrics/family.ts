import type { Histogram } from '../../meters/histogram.js'

export type Labels = Readonly<Record<string, string | number>>

export interface Sample {
  readonly labels: Labels
  readonly value: number
  /** Of a part of a histogram: the name of the family with `_bucket`, `_sum` or `_count`. */
  readonly metricName?: string
}

/** A metric of the text format, with its samples of this moment. */
export interface Family {
  readonly name: string
  readonly help: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly values: readonly Sample[]
}

/** A value, or one value per set of labels. */
type Values = number | readonly (readonly [Labels, number])[]

const NONE: Labels = {}

export function counter(name: string, help: string, values: Values): Family {
  return { name, help, type: 'counter', values: samplesOf(values) }
}

export function gauge(name: string, help: string, values: Values): Family {
  return { name, help, type: 'gauge', values: samplesOf(values) }
}

function samplesOf(values: Values): Sample[] {
  if (typeof values === 'number') return [{ labels: NONE, value: values }]
  return values.map(([labels, value]) => ({ labels, value }))
}

export function histogram(name: string, help: string, all: Histogram | Iterable<readonly [Labels, Histogram]>): Family {
  const values: Sample[] = []
  const each = Symbol.iterator in all ? all : [[NONE, all] as const]
  for (const [labels, { bounds, counts, sum }] of each) {
    let count = 0
    for (const [i, bound] of bounds.entries()) {
      count += counts[i] ?? 0
      values.push({ metricName: `${name}_bucket`, labels: { ...labels, le: bound }, value: count })
    }
    count += counts[bounds.length] ?? 0
    values.push({ metricName: `${name}_bucket`, labels: { ...labels, le: '+Inf' }, value: count })
    values.push({ metricName: `${name}_sum`, labels, value: sum })
    values.push({ metricName: `${name}_count`, labels, value: count })
  }
  return { name, help, type: 'histogram', values }
}
