import { expect, test } from 'vitest'
import { counter, histogram } from '../../../src/http/metrics/family.js'
import { linesOf } from '../../../src/http/metrics/text-format.js'
import { Histogram } from '../../../src/meters/histogram.js'

test('a family without labels', () => {
  expect([...linesOf(counter('a_total', 'Help.', 1.5))]).toEqual([
    '# HELP a_total Help.',
    '# TYPE a_total counter',
    'a_total 1.5',
  ])
})

test('backslashes, line ends and quotes', () => {
  const family = counter('a_total', 'one\\two\n"three"', [[{ name: 'one\\two\n"three"', code: 200 }, 1e21]])
  expect([...linesOf(family)]).toEqual([
    '# HELP a_total one\\\\two\\n"three"',
    '# TYPE a_total counter',
    'a_total{name="one\\\\two\\n\\"three\\"",code="200"} 1e+21',
  ])
})

test('a histogram', () => {
  const durations = new Histogram([0.5, 1])
  for (const value of [0.25, 1, 7]) durations.observe(value)
  expect([...linesOf(histogram('a_seconds', 'Help.', [[{ kind: 'x' }, durations]]))].slice(2)).toEqual([
    'a_seconds_bucket{kind="x",le="0.5"} 1',
    'a_seconds_bucket{kind="x",le="1"} 2',
    'a_seconds_bucket{kind="x",le="+Inf"} 3',
    'a_seconds_sum{kind="x"} 8.25',
    'a_seconds_count{kind="x"} 3',
  ])
})

test('a family without samples', () => {
  expect([...linesOf(counter('a_total', 'Help.', []))]).toEqual(['# HELP a_total Help.', '# TYPE a_total counter'])
})
