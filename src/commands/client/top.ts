import { setTimeout as pause } from 'node:timers/promises'
import { isKvError } from '../../client/index.js'
import { parseMetrics } from '../../readings/metrics-text.js'
import { columnsOf, plansFor, type Reading } from '../../readings/reading.js'
import type { Paint } from '../paint.js'
import { positiveOf } from './arguments.js'
import { type Call, clientCommand } from './client-command.js'
import { cutTo, shown, shownText } from './shown.js'
import { wireJson } from './wire-json.js'

const EVERY_MS = 1000
/** As many as the widest terminal shows. */
const READINGS_KEPT = 200
/** q, Q, Ctrl-C, Ctrl-D. */
const END_KEYS: ReadonlySet<number> = new Set([0x71, 0x51, 3, 4])
const BARS = '▁▂▃▄▅▆▇█'

type Status = Awaited<ReturnType<Call['db']['status']>>
interface TopReading extends Reading {
  readonly full: Status
}

export const top = clientCommand({
  flags: { count: { value: 'N', help: 'ends after so many seconds', variable: false } },
  about: `Shows what a server does, once a second: rates, latencies, locks, lag and memory, with their course. q or Ctrl-C ends it. In a pipe it
prints a line of JSON per second. Rates and latencies need a token that may read /metrics.`,
  example: `$ perkv top --count 60 | jq -c '[.time, .requests.answered, .latency.p99]'
["2026-11-23T04:00:00.000Z",5204.1,1.9]`,
  isEndless: true,

  async run(call) {
    const { flags, screen, signal } = call
    const count = positiveOf(flags.optional('count')) ?? Number.POSITIVE_INFINITY
    const stop = new AbortController()
    const end = (): void => stop.abort()
    signal.addEventListener('abort', end)
    const isLive = screen.form === 'table'
    const leave = isLive ? enterScreen(screen, end) : undefined
    const readings: TopReading[] = []
    try {
      for (let shownCount = 0; shownCount < count && !stop.signal.aborted; ) {
        const before = readings.at(-1)
        const next = performance.now() + EVERY_MS
        const taken = await takeReading(call, before, stop.signal).catch((error: unknown) => {
          if (before === undefined || stop.signal.aborted) throw error
          return error
        })
        if (!(taken instanceof Error)) readings.push(taken as TopReading)
        if (readings.length > READINGS_KEPT) readings.shift()
        if (isLive) await screen.write(drawn(readings, taken instanceof Error ? taken : undefined, screen))
        else if (taken instanceof Error) call.note(`${taken.message}; trying again`)
        else if (before !== undefined) await screen.line(lineOf(readings))
        if (before !== undefined) shownCount++
        if (shownCount >= count) break
        const leftMs = next - performance.now() // After a late answer the next rate is of a whole second too.
        await pause(leftMs > 0 ? leftMs : EVERY_MS, undefined, { signal: stop.signal })
      }
    } catch (error) {
      if (!stop.signal.aborted) throw error
    } finally {
      signal.removeEventListener('abort', end)
      await leave?.()
    }
    return undefined
  },
})

async function takeReading({ db }: Call, before: Reading | undefined, signal: AbortSignal): Promise<TopReading> {
  const begun = performance.now()
  const full = await db.status({ signal })
  const tripMs = performance.now() - begun
  const hasMetrics = before === undefined || before.metrics !== undefined
  const text = hasMetrics ? await db.admin.metrics(signal).catch(unlessForbidden) : undefined
  const status = JSON.parse(wireJson(full)) as Reading['status'] // With the names of the wire.
  return { at: Date.now() / 1000, full, status, metrics: text === undefined ? undefined : parseMetrics(text), tripMs }
}

function unlessForbidden(error: unknown): undefined {
  if (!isKvError(error, 'forbidden') && !isKvError(error, 'not_found')) throw error
}

/** The newest values of all lines. */
function lineOf(readings: readonly Reading[]): object {
  const now = readings.at(-1)
  if (now === undefined) return {}
  const plans = plansFor(now).map((plan) => {
    const [, ...columns] = columnsOf(plan, readings.slice(-2))
    const values = plan.lines.map(({ label }, i) => [slug(label), rounded(columns[i]?.at(-1))])
    return [slug(plan.title), Object.fromEntries(values)]
  })
  return { time: new Date(now.at * 1000).toISOString(), ...Object.fromEntries(plans) }
}

function rounded(value: number | null | undefined): number | null {
  return value === null || value === undefined ? null : Math.round(value * 1000) / 1000
}

/** `one_phase`, `p99`. */
function slug(label: string): string {
  const words = label.toLowerCase().match(/[a-z0-9]+/g) ?? []
  return words.join('_').replace(/^(?=\d)/, 'p')
}

/** A whole screen, drawn over the one before. */
function drawn(
  readings: readonly TopReading[],
  error: Error | undefined,
  { columns, rows, paint }: { readonly columns: number; readonly rows: number; readonly paint: Paint },
): string {
  const now = readings.at(-1)
  const lines: string[] = []
  if (now !== undefined) {
    const { version, store, durability, uptimeMs, writable, fault, feed } = now.full
    const about = `PerKV ${version} on ${store}, ${durability}, up ${uptimeText(uptimeMs)}; q ends`
    lines.push(paint('bold', cutTo(shownText(about), columns)))
    if (!writable)
      lines.push(paint('red', cutTo(shownText(`refuses writes${fault === undefined ? '' : `: ${fault}`}`), columns)))
    for (const { key, expiresInMs } of feed.heldBackBy.slice(0, 1))
      lines.push(
        paint('yellow', cutTo(`the feed waits for the lock of ${shown(key)}, ${expiresInMs} ms left`, columns)),
      )
    for (const plan of plansFor(now)) {
      const [, ...values] = columnsOf(plan, readings)
      plan.lines.forEach(({ label }, i) => {
        const course = values[i] ?? []
        const left = `${(i === 0 ? plan.title : '').padEnd(11)}${label.padEnd(18)}`
        const value = quantity(course.at(-1), plan.unit).padStart(11)
        const bars = barsOf(course, Math.max(0, columns - left.length - value.length - 2))
        lines.push(
          `${paint('bold', left.slice(0, 11))}${cutTo(`${left.slice(11)}${value}`, Math.max(8, columns - 11))}  ${paint('dim', bars)}`,
        )
      })
    }
    if (now.metrics === undefined)
      lines.push(paint('dim', cutTo('no rates: this token may not read /metrics', columns)))
  }
  if (error !== undefined) lines.splice(1, 0, paint('red', cutTo(shownText(error.message), columns)))
  return `\x1b[H${lines
    .slice(0, rows - 1)
    .map((line) => `${line}\x1b[K\n`)
    .join('')}\x1b[J`
}

function quantity(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined) return '-'
  const digits = value !== 0 && Math.abs(value) < 10 && !Number.isInteger(value) ? 2 : 0
  return `${value.toLocaleString('en', { maximumFractionDigits: digits })}${unit === '' ? '' : ` ${unit}`}`
}

/** The newest values, as high as their share of the highest one. */
function barsOf(values: readonly (number | null)[], width: number): string {
  const last = width === 0 ? [] : values.slice(-width)
  const highest = Math.max(...last.map((value) => value ?? 0))
  const bars = last.map((value) => {
    if (value === null) return ' '
    return BARS[highest === 0 ? 0 : Math.min(BARS.length - 1, Math.floor((value / highest) * BARS.length))]
  })
  return bars.join('')
}

function uptimeText(ms: number): string {
  const minutes = Math.floor(ms / 60_000)
  if (minutes < 1) return `${Math.floor(ms / 1000)} s`
  if (minutes < 120) return `${minutes} min`
  return minutes < 48 * 60 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} days`
}

/** Shows a screen of its own, and reads keys. @returns a function that gives the terminal back. */
function enterScreen(screen: Call['screen'], end: () => void): () => Promise<void> {
  const { stdin } = process
  const onKeys = (keys: Buffer): void => {
    if (keys.some((byte) => END_KEYS.has(byte))) end()
  }
  const restore = (): void => void (stdin.isTTY && stdin.setRawMode(false))
  if (stdin.isTTY) stdin.setRawMode(true).on('data', onKeys)
  process.on('SIGTERM', end).on('SIGHUP', end).on('exit', restore)
  void screen.write('\x1b[?1049h\x1b[?25l')
  return async () => {
    await screen.write('\x1b[?25h\x1b[?1049l')
    restore()
    if (stdin.isTTY) stdin.off('data', onKeys).pause()
    process.off('SIGTERM', end).off('SIGHUP', end).off('exit', restore)
  }
}
