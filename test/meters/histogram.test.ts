import { expect, test } from 'vitest'
import { histogram } from '../../src/http/metrics/family.js'
import { Histogram } from '../../src/meters/histogram.js'

test('a value is in the first bucket whose bound it does not exceed; buckets of the text format add up', () => {
  const values = new Histogram([1, 2, 4])
  for (const value of [0, 1, 1.5, 4, 5, Number.POSITIVE_INFINITY]) values.observe(value)
  expect([...values.counts]).toEqual([2, 1, 1, 2])
  const finite = new Histogram([1, 2])
  for (const value of [0.5, 1.5, 7]) finite.observe(value)
  const samples = [...histogram('waits', 'Waits.', finite).values].map(({ metricName, labels, value }) => [
    metricName,
    labels['le'],
    value,
  ])
  expect(samples).toEqual([
    ['waits_bucket', 1, 1],
    ['waits_bucket', 2, 2],
    ['waits_bucket', '+Inf', 3],
    ['waits_sum', undefined, 9],
    ['waits_count', undefined, 3],
  ])
})
