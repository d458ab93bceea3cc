// The ratios that have a floor as a chart: to be comparable, each as a multiple of its floor.
import { bars } from '../chart.mjs'
import { hundredths } from './table.mjs'

export function pictureOf(reports) {
  const rows = reports.flatMap(({ name, ratios }) =>
    ratios.filter(({ attained }) => attained !== undefined).map((ratio) => rowOf(name, ratio)),
  )
  return bars(rows, { title: 'Ratios to their floors', axisLabel: '1 is the floor, more is better' })
}

function rowOf(work, ratio) {
  const { of, over, median, min, max, atLeast, atMost } = ratio
  const shareOf = (number) => (atLeast === undefined ? atMost / number : number / atLeast)
  const shares = [min, max].map(shareOf).toSorted((a, b) => a - b)
  return {
    name: `${work}: ${of} / ${over}`,
    ratio: shareOf(median),
    min: shares[0],
    max: shares[1],
    target: 1,
    words: hundredths(median),
    goal: atLeast === undefined ? `≤ ${atMost}` : `≥ ${atLeast}`,
  }
}
