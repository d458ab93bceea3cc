import { axis, short } from './axis.mjs'
import { COLOURS, line, picture, round, text } from './svg.mjs'

const WIDTH = 760
const HEIGHT = 380
const PLOT = { left: 72, right: WIDTH - 72, top: 76, bottom: HEIGHT - 56 }
/** More points than this are a curve; fewer are measurements, and get a dot each. */
const DOTS_MAX = 40

/**
 * Lines over one x axis, and one or two y axes.
 * @param chart.x {label, kind: 'linear' | 'log10'}
 * @param chart.y {label, kind?}
 * @param chart.y2 likewise, to the right.
 * @param chart.series [{name, points: [[x, y]], right?}]; a y that is null leaves a gap.
 */
export function lines({ title, x, y, y2, series }) {
  const xs = scaleOf(series, 0, x, PLOT.left, PLOT.right)
  const left = scaleOf(ofSide(series, false), 1, y, PLOT.bottom, PLOT.top)
  const right = y2 && scaleOf(ofSide(series, true), 1, y2, PLOT.bottom, PLOT.top)
  const coloured = series.map((one, i) => ({ ...one, colour: COLOURS.series[i % COLOURS.series.length] }))
  return picture(WIDTH, HEIGHT, title, [
    text(20, 28, title, { size: 15, weight: 600 }),
    ...legend(coloured, y2 !== undefined),
    ...left.ticks.flatMap((tick) => [
      line(PLOT.left, left.at(tick), PLOT.right, left.at(tick), COLOURS.grid),
      text(PLOT.left - 8, left.at(tick) + 4, short(tick), { anchor: 'end', colour: COLOURS.muted, size: 11 }),
    ]),
    ...(right?.ticks ?? []).map((tick) =>
      text(PLOT.right + 8, right.at(tick) + 4, short(tick), { colour: COLOURS.muted, size: 11 }),
    ),
    ...xs.ticks.flatMap((tick) => [
      line(xs.at(tick), PLOT.bottom, xs.at(tick), PLOT.bottom + 4, COLOURS.grey),
      text(xs.at(tick), PLOT.bottom + 18, short(tick), { anchor: 'middle', colour: COLOURS.muted, size: 11 }),
    ]),
    line(PLOT.left, PLOT.bottom, PLOT.right, PLOT.bottom, COLOURS.grey),
    label((PLOT.left + PLOT.right) / 2, HEIGHT - 14, x.label),
    label(20, (PLOT.top + PLOT.bottom) / 2, y.label, -90),
    ...(y2 === undefined ? [] : [label(WIDTH - 16, (PLOT.top + PLOT.bottom) / 2, y2.label, 90)]),
    ...coloured.flatMap((one) => curve(one, xs, one.right ? right : left)),
  ])
}

const ofSide = (series, right) => series.filter((one) => Boolean(one.right) === right)

/** From values to pixels. */
function scaleOf(series, coordinate, { kind }, from, to) {
  const values = series.flatMap(({ points }) => points.map((point) => point[coordinate]))
  const { at, ticks } = axis(
    values.filter((value) => value !== null),
    kind,
  )
  return { at: (value) => from + at(value) * (to - from), ticks }
}

function curve({ points, colour, right }, xs, ys) {
  const isDense = points.length > DOTS_MAX
  let command = 'M'
  const path = points.flatMap(([x, y]) => {
    const step = y === null ? [] : [`${command}${round(xs.at(x))} ${round(ys.at(y))}`]
    command = y === null ? 'M' : 'L'
    return step
  })
  const dash = right ? ' stroke-dasharray="5 3"' : ''
  const dots = isDense ? [] : points.filter(([, y]) => y !== null)
  return [
    `<path d="${path.join('')}" fill="none" stroke="${colour}" stroke-width="${isDense ? 1.2 : 2}" stroke-linejoin="round"${isDense ? '' : dash}/>`,
    ...dots.map(([x, y]) => `<circle cx="${round(xs.at(x))}" cy="${round(ys.at(y))}" r="3.2" fill="${colour}"/>`),
  ]
}

function legend(series, hasTwoAxes) {
  let from = 20
  return series.flatMap(({ name, colour, right }) => {
    const words = hasTwoAxes ? `${name} (${right ? 'right' : 'left'})` : name
    const entry = [
      line(from, 49, from + 20, 49, colour, 3),
      text(from + 26, 53, words, { colour: COLOURS.muted, size: 11 }),
    ]
    from += 50 + 6.4 * words.length
    return entry
  })
}

const label = (x, y, words, turn) => text(x, y, words, { anchor: 'middle', colour: COLOURS.muted, size: 12, turn })
