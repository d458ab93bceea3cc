import { msOf, PER_MS, timeOf } from './readable-time.js'

const UNITS: readonly (readonly [RegExp, number])[] = [
  [/^(ms|milliseconds?)$/, 1],
  [/^(s|secs?|seconds?)$/, 1000],
  [/^(m|mins?|minutes?)$/, 60_000],
  [/^(h|hours?)$/, 3_600_000],
  [/^(d|days?)$/, 86_400_000],
]
/** Numbers below it are Unix seconds, and below the next Unix milliseconds. */
const SECONDS_MAX = 1e11
const MILLISECONDS_MAX = 1e14

/**
 * The timestamp that a person means: a timestamp or Unix time, `10 min ago`, `13:40` (the last one), or a date with a time, which
 * is local unless it has a zone.
 * @returns undefined for now.
 * @throws Error with what to tell, also for a time that cannot be read: before the safe point, or ahead.
 */
export function typedTime(text: string, nowTs: number, safePoint: number): number | undefined {
  const ts = timestampIn(text.trim().toLowerCase(), msOf(nowTs))
  if (ts === undefined) return undefined
  if (ts > nowTs) throw new Error('This time lies ahead.')
  if (ts < safePoint)
    throw new Error(
      `This time is before the safe point, ${timeOf(safePoint)}: versions of then may be collected already. No earlier time can be read.`,
    )
  return ts
}

function timestampIn(text: string, nowMs: number): number | undefined {
  if (text === '' || text === 'now') return undefined
  if (/^\d{9,17}$/.test(text)) return ofNumber(Number(text))
  const ms = agoIn(text, nowMs) ?? clockIn(text, nowMs) ?? dateIn(text)
  if (ms === undefined)
    throw new Error('Type a time such as 10 min ago, 13:40, 2026-11-28 13:40:05, an ISO time, or a timestamp.')
  return endOf(ms)
}

/** Includes every commit of the millisecond. */
function endOf(ms: number): number {
  return ms * PER_MS + PER_MS - 1
}

function ofNumber(given: number): number {
  if (given < SECONDS_MAX) return endOf(given * 1000)
  return given < MILLISECONDS_MAX ? endOf(given) : given
}

function agoIn(text: string, nowMs: number): number | undefined {
  const [, count, name = ''] = /^(\d{1,9}(?:\.\d{1,9})?)\s*([a-z]+)(?:\s+ago)?$/.exec(text) ?? []
  const unit = UNITS.find(([names]) => names.test(name))
  return unit && Math.round(nowMs - Number(count) * unit[1])
}

function clockIn(text: string, nowMs: number): number | undefined {
  if (!/^\d{1,2}:\d\d(:\d\d(\.\d{1,3})?)?$/.test(text)) return undefined
  const [hours = 0, minutes = 0, seconds = 0] = text.split(':').map(Number)
  if (hours > 23 || minutes > 59 || seconds >= 60) return undefined
  const day = new Date(nowMs)
  const timeOfDay = (): number => day.setHours(hours, minutes, 0, Math.round(seconds * 1000))
  if (timeOfDay() <= nowMs) return day.getTime()
  day.setTime(nowMs)
  day.setDate(day.getDate() - 1) // Not every day has 24 hours.
  return timeOfDay()
}

function dateIn(text: string): number | undefined {
  const [, date, time = '00:00', zone = ''] =
    /^(\d{4}-\d\d-\d\d)(?:[t ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)\s*(z|[+-]\d\d:?\d\d)?)?$/.exec(text) ?? []
  const ms = date === undefined ? Number.NaN : Date.parse(`${date}T${time}${zone.toUpperCase()}`)
  return Number.isNaN(ms) ? undefined : ms
}
