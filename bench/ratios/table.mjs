// What was measured, for people.
import { cpuOf, isBelow, ratesOf, summaryOf } from './measure.mjs'

const columns = (name, middle, spread, note = '') =>
  `  ${name.padEnd(32)}${middle.padStart(10)}   ${spread.padEnd(22)}${note}`.trimEnd()

export const spreadOf = ({ min, max }, print) => `${print(min)} to ${print(max)}`
export const whole = (number) => Math.round(number).toLocaleString('en')
const hundredths = (number) => number.toFixed(2)
/** How numbers of this ratio are printed: it may be a rate. */
export const printOf = ({ over }) => (over === undefined ? whole : hundredths)
export const short = (number) => String(Number(number.toPrecision(3)))

export function tableOf({ name, unit, contenders, results, ratios }) {
  const rates = contenders.map((contender) => {
    if (results[contender] === undefined) return columns(contender, `no ${contender}`, '')
    const summary = ratesOf(results[contender])
    return columns(contender, whole(summary.median), spreadOf(summary, whole), noteOf(results[contender]))
  })
  const lines = ratios.map((ratio) => {
    const print = printOf(ratio)
    return columns(nameOf(ratio), print(ratio.median), spreadOf(ratio, print), verdictOf(ratio))
  })
  return [`${name}, ${unit} per second`, ...rates, ...lines, ''].join('\n')
}

function noteOf(rounds) {
  const p99s = rounds.flatMap(({ p99 }) => p99 ?? [])
  const cpu = cpuOf(rounds)
  return [
    ...(p99s.length === 0 ? [] : [`p99 ${short(summaryOf(p99s).median)} ms`]),
    ...(cpu === undefined ? [] : [`CPU ${short(cpu.all)} µs, main thread ${short(cpu.main)}`]),
  ].join('; ')
}

export const nameOf = ({ of, over }) => (over === undefined ? `${of}, per second` : `${of} / ${over}`)

export function verdictOf(ratio) {
  const { median, goal, floor } = ratio
  const print = printOf(ratio)
  return [
    ...(goal === undefined ? [] : [`goal ${print(goal)}: ${median >= goal ? 'reached' : 'missed'}`]),
    ...(floor === undefined ? [] : [`floor ${print(floor)}: ${isBelow(ratio) ? 'BELOW' : 'held'}`]),
  ].join('; ')
}
