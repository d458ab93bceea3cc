import { linear } from './axis.mjs'
import { COLOURS, line, picture, rect, text } from './svg.mjs'

const WIDTH = 760
const ROW = 34
const TOP = 74
const BOTTOM = 40
const LEFT_MAX = 300
/** For the numbers to the right of the bars. */
const RIGHT = 150

/**
 * Horizontal bars: each row's ratio, the spread of its rounds, and its target; green when the target is met, else amber.
 * @param rows [{name, ratio, min?, max?, target?, words?, goal?}]; `words` and `goal` stand for the ratio and its target
 * where these are not what is to be read.
 */
export function bars(rows, { title = 'Ratio', axisLabel = 'ratio' } = {}) {
  // A guess at the width of text is all that can be had without a browser: 6.6 px a character at 12 px.
  const left = Math.min(LEFT_MAX, 24 + 6.6 * Math.max(...rows.map(({ name }) => name.length)))
  const height = TOP + rows.length * ROW + BOTTOM
  const { at, ticks } = linear(Math.max(...rows.flatMap(({ ratio, max, target }) => [ratio, max ?? 0, target ?? 0])))
  const x = (value) => left + at(value) * (WIDTH - left - RIGHT)
  const floor = height - BOTTOM
  return picture(WIDTH, height, title, [
    text(20, 28, title, { size: 15, weight: 600 }),
    ...legend(rows),
    ...ticks.flatMap((tick) => [
      line(x(tick), TOP - 6, x(tick), floor, COLOURS.grid),
      text(x(tick), floor + 16, tick, { anchor: 'middle', colour: COLOURS.muted, size: 11 }),
    ]),
    text((x(0) + x(ticks.at(-1))) / 2, floor + 32, axisLabel, { anchor: 'middle', colour: COLOURS.muted, size: 11 }),
    ...rows.flatMap((row, i) => bar(row, TOP + i * ROW + ROW / 2, left, x)),
  ])
}

function bar({ name, ratio, min, max, target, words, goal }, y, left, x) {
  const colour = colourOf(ratio, target)
  const targeted = target === undefined ? '' : `target ${target.toFixed(2)}`
  return [
    text(left - 10, y + 4, name, { anchor: 'end' }),
    rect(x(0), y - 9, x(ratio) - x(0), 18, colour, 2),
    ...(min === undefined || max === undefined ? [] : whisker(x(min), x(max), y)),
    ...(target === undefined ? [] : [line(x(target), y - 14, x(target), y + 14, COLOURS.text, 2.5)]),
    text(WIDTH - RIGHT + 18, y + 4, words ?? ratio.toFixed(2), { weight: 600 }),
    text(WIDTH - 20, y + 4, goal ?? targeted, { anchor: 'end', colour: COLOURS.muted }),
  ]
}

function whisker(from, to, y) {
  const ends = [from, to].map((end) => line(end, y - 5, end, y + 5, COLOURS.text, 1.5))
  return [line(from, y, to, y, COLOURS.text, 1.5), ...ends]
}

function colourOf(ratio, target) {
  if (target === undefined) return COLOURS.grey
  return ratio >= target ? COLOURS.green : COLOURS.amber
}

function legend(rows) {
  const entries = [
    ...(rows.some(({ ratio, target }) => ratio >= target) ? [[COLOURS.green, 'target met']] : []),
    ...(rows.some(({ ratio, target }) => ratio < target) ? [[COLOURS.amber, 'below target']] : []),
  ]
  const boxes = entries.flatMap(([colour, words], i) => [
    rect(20 + i * 110, 43, 12, 12, colour, 2),
    text(37 + i * 110, 53, words, { colour: COLOURS.muted, size: 11 }),
  ])
  const from = 20 + entries.length * 110
  const spread = rows.some(({ min }) => min !== undefined)
    ? [
        ...whisker(from, from + 20, 49),
        text(from + 26, 53, 'spread of the rounds', { colour: COLOURS.muted, size: 11 }),
      ]
    : []
  const tick = rows.some(({ target }) => target !== undefined)
    ? [
        line(from + 168, 42, from + 168, 56, COLOURS.text, 2.5),
        text(from + 176, 53, 'target', { colour: COLOURS.muted, size: 11 }),
      ]
    : []
  return [...boxes, ...spread, ...tick]
}
