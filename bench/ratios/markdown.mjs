// What was measured, in Markdown, as it stands in docs/performance.md.
import { cpuOf, ratesOf } from './measure.mjs'
import { settingOf } from './setting.mjs'
import { printOf, short, spreadOf, whole } from './table.mjs'

const PEERS = ['bare', 'one record', 'naive', 'etcd']

const line = (cells) => `| ${cells.join(' | ')} |`
const head = (names, alignments) => [line(names), line(alignments)]

export const markdownOf = (setting, reports) =>
  [
    settingOf(setting),
    '',
    ...head(
      ['Work', 'PerKV', 'Beside', 'Ratio', 'Spread', 'Goal', 'Reached', 'Floor'],
      ['---', '---:', '---:', '---:', '---:', '---:', '---', '---:'],
    ),
    ...reports.flatMap(ratioLines),
    '',
    ...head(
      ['CPU µs per operation', '', 'PerKV', 'main thread', ...PEERS],
      ['---', '---', ...Array(2 + PEERS.length).fill('---:')],
    ),
    ...reports.flatMap(cpuLines),
  ].join('\n')

function ratioLines({ name, unit, results, ratios }) {
  return ratios.map((ratio) => {
    const { of, over, median, goal, floor } = ratio
    const print = printOf(ratio)
    const rate = (contender) =>
      contender === undefined ? '' : `${contender}: ${whole(ratesOf(results[contender]).median)}`
    const bound = (value) => (value === undefined ? '' : print(value))
    const reached = goal === undefined ? '' : median >= goal ? 'yes' : 'no'
    const measured = over === undefined ? ['', ''] : [print(median), spreadOf(ratio, print)]
    return line([
      `\`${name}\`, ${unit} per second`,
      rate(of),
      rate(over),
      ...measured,
      bound(goal),
      reached,
      bound(floor),
    ])
  })
}

/** A row for each contender that is PerKV, with the others beside it. */
function cpuLines({ name, results }) {
  const shown = (number) => (number === undefined ? '' : short(number))
  const peers = PEERS.map((peer) => shown(cpuOf(results[peer])?.all))
  return Object.entries(results)
    .filter(([contender]) => !PEERS.includes(contender))
    .flatMap(([contender, rounds]) => {
      const cpu = cpuOf(rounds)
      return cpu === undefined ? [] : [line([`\`${name}\``, contender, short(cpu.all), short(cpu.main), ...peers])]
    })
}
