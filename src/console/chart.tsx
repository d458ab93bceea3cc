import type { JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import type { ChartPlan } from '../readings/reading.js'
import { readableMs } from './readable-time.js'

interface Props {
  readonly title: string
  readonly unit: ChartPlan['unit']
  readonly labels: readonly string[]
  /** Times in Unix seconds, then one column per label. */
  readonly columns: readonly (readonly (number | null)[])[]
  /** Seconds that the chart spans. */
  readonly span: number
}

const HEIGHT = 150
const HUES = ['--write', '--lock', '--data', '--past']

function readableNumber(value: number): string {
  if (value >= 10_000) return `${(value / 1000).toFixed(value >= 100_000 ? 0 : 1)} k`
  if (value >= 100 || Number.isInteger(value)) return value.toFixed(0)
  return value.toFixed(value >= 10 ? 1 : 2)
}

function readable(value: number, unit: Props['unit']): string {
  if (unit === 'ms') return readableMs(value)
  return unit === '/s' ? `${readableNumber(value)}/s` : `${readableNumber(value)} ${unit}`.trimEnd()
}

/** One unit per number, so that it fits. */
function onAxis(value: number, unit: Props['unit']): string {
  if (unit !== 'ms' || value < 1000) return readable(value, unit)
  return value < 120_000 ? `${readableNumber(value / 1000)} s` : `${readableNumber(value / 60_000)} min`
}

export function Chart({ title, unit, labels, columns, span }: Props): JSX.Element {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | undefined>(undefined)
  const names = labels.join('\n')
  const spanned = useRef(span)
  spanned.current = span

  useEffect(() => {
    const parent = box.current
    if (parent === null) return
    const make = (): void => {
      plot.current?.destroy()
      plot.current = new uPlot(optionsOf(parent, names.split('\n'), spanned, unit), [[]], parent)
    }
    make()
    const dark = matchMedia('(prefers-color-scheme: dark)')
    dark.addEventListener('change', make)
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: parent.clientWidth, height: HEIGHT }))
    resize.observe(parent)
    return () => {
      dark.removeEventListener('change', make)
      resize.disconnect()
      plot.current?.destroy()
      plot.current = undefined
    }
  }, [names, unit])
  useEffect(() => {
    plot.current?.setData(columns.map((column) => [...column]) as uPlot.AlignedData)
  }, [columns])

  return (
    <section class="panel chart" aria-label={title}>
      <header>
        <h2>{title}</h2>
        <ul class="legend">
          {labels.map((label, i) => {
            const last = columns[i + 1]?.at(-1)
            return (
              <li key={label} class={`line-${i}`}>
                {label} <strong>{last === null || last === undefined ? '–' : readable(last, unit)}</strong>
              </li>
            )
          })}
        </ul>
      </header>
      <div ref={box} class="plot" aria-hidden="true" />
    </section>
  )
}

function optionsOf(
  parent: HTMLElement,
  labels: readonly string[],
  span: { readonly current: number },
  unit: Props['unit'],
): uPlot.Options {
  const style = getComputedStyle(parent)
  const color = (name: string): string => style.getPropertyValue(name).trim()
  const grid = { stroke: color('--line'), width: 1 }
  const font = `11px ${style.fontFamily}`
  return {
    width: parent.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { range: (_, __, max) => [max - span.current, max] },
      y: { range: (_, __, max) => [0, Math.max(1, (max ?? 0) * 1.15)] },
    },
    axes: [
      { stroke: color('--soft'), grid: { show: false }, ticks: grid, font, size: 26, space: 90 },
      {
        stroke: color('--soft'),
        grid,
        ticks: { show: false },
        font,
        size: 54,
        values: (_, all) => all.map((value) => onAxis(value, unit)),
      },
    ],
    series: [
      {},
      ...labels.map((label, i) => ({ label, stroke: color(HUES[i] ?? '--ink'), width: 1.75, points: { show: false } })),
    ],
  }
}
