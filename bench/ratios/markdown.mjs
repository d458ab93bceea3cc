// What was measured, in Markdown, as it stands in docs/performance.md.
import { cpuOf, ratesOf } from './measure.mjs'
import { settingOf } from './setting.mjs'
import { printOf, short, spreadOf, whole } from './table.mjs'

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
    ...head(['CPU µs', 'PerKV', 'its main thread', ...PEERS], ['---', '---:', '---:', ...PEERS.map(() => '---:')]),
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

/** Of these the time of all threads is shown. */
const PEERS = ['bare', 'one record', 'naive', 'etcd']

function cpuLines({ name, results }) {
  const perkv = cpuOf(results.perkv)
  if (perkv === undefined) return []
  const shown = (number) => (number === undefined ? '' : short(number))
  return [
    line([
      `\`${name}\``,
      short(perkv.all),
      short(perkv.main),
      ...PEERS.map((peer) => shown(cpuOf(results[peer])?.all)),
    ]),
  ]
}
