// What was measured, for people.
import { ratesOf, summaryOf } from './measure.mjs'

const columns = (name, middle, spread, note = '') =>
  `  ${name.padEnd(32)}${middle.padStart(10)}   ${spread.padEnd(22)}${note}`.trimEnd()

export const spreadOf = ({ min, max }, print) => `${print(min)} to ${print(max)}`
export const whole = (number) => Math.round(number).toLocaleString('en')
export const hundredths = (number) => number.toFixed(2)

export function tableOf({ name, unit, contenders, results, ratios }) {
  const rates = contenders.map((contender) => {
    if (results[contender] === undefined) return columns(contender, `no ${contender.split(' ').at(-1)}`, '')
    const summary = ratesOf(results[contender])
    const p99s = results[contender].flatMap(({ p99 }) => p99 ?? [])
    const note = p99s.length === 0 ? '' : `p99 ${Number(summaryOf(p99s).median.toPrecision(3))} ms`
    return columns(contender, whole(summary.median), spreadOf(summary, whole), note)
  })
  const lines = ratios.map((ratio) =>
    columns(`${ratio.of} / ${ratio.over}`, hundredths(ratio.median), spreadOf(ratio, hundredths), verdictOf(ratio)),
  )
  return [`${name}, ${unit} per second`, ...rates, ...lines, ''].join('\n')
}

export function verdictOf(ratio) {
  const { attained } = ratio
  if (attained === undefined) return ''
  return attained >= 1 ? `${floorOf(ratio)}: held` : `${floorOf(ratio)}: BELOW by ${Math.ceil((1 - attained) * 100)} %`
}

export const floorOf = ({ atLeast, atMost }) => (atLeast === undefined ? `at most ${atMost}` : `at least ${atLeast}`)
