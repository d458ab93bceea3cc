// What was measured, for people.
import { summaryOf } from './measure.mjs'

const columns = (name, middle, spread, note = '') =>
  `  ${name.padEnd(32)}${middle.padStart(10)}   ${spread.padEnd(22)}${note}`.trimEnd()

const spreadOf = ({ min, max }, print) => `${print(min)} to ${print(max)}`
const whole = (number) => Math.round(number).toLocaleString('en')
const hundredths = (number) => number.toFixed(2)

export function tableOf({ name, unit, contenders, results, ratios }) {
  const rates = contenders.map((contender) => {
    if (results[contender] === undefined) return columns(contender, `no ${contender.split(' ').at(-1)}`, '')
    const summary = summaryOf(results[contender].map(({ rate }) => rate))
    const p99s = results[contender].flatMap(({ p99 }) => p99 ?? [])
    const note = p99s.length === 0 ? '' : `p99 ${hundredths(summaryOf(p99s).median)} ms`
    return columns(contender, whole(summary.median), spreadOf(summary, whole), note)
  })
  const lines = ratios.map((ratio) =>
    columns(`${ratio.of} / ${ratio.over}`, hundredths(ratio.median), spreadOf(ratio, hundredths), verdictOf(ratio)),
  )
  return [`${name}, ${unit} a second`, ...rates, ...lines, ''].join('\n')
}

export function verdictOf({ atLeast, atMost, attained }) {
  if (attained === undefined) return ''
  const target = atLeast === undefined ? `at most ${atMost}` : `at least ${atLeast}`
  return attained >= 1 ? `${target}: met` : `${target}: SHORT by ${Math.ceil((1 - attained) * 100)} %`
}
