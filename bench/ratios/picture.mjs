// The ratios that have a goal as a chart: to be comparable, each as a multiple of its goal.
import { bars } from '../chart.mjs'
import { nameOf, printOf } from './table.mjs'

export function pictureOf(reports) {
  const rows = reports.flatMap(({ name, ratios }) =>
    ratios.filter(({ goal }) => goal !== undefined).map((ratio) => rowOf(name, ratio)),
  )
  return bars(rows, { title: 'Ratios to their goals', axisLabel: '1 is the goal, more is better' })
}

function rowOf(work, ratio) {
  const { median, min, max, goal } = ratio
  const print = printOf(ratio)
  return {
    name: `${work}: ${nameOf(ratio)}`,
    ratio: median / goal,
    min: min / goal,
    max: max / goal,
    target: 1,
    words: print(median),
    goal: `≥ ${print(goal)}`,
  }
}
