export const PER_MS = 2048
/** The year 2001: a timestamp below it was chosen by a client, and is no time. */
const CLOCK_MIN = 1e12 * PER_MS

export function msOf(ts: number): number {
  return Math.floor(ts / PER_MS)
}

export function timeOf(ts: number): string | undefined {
  if (ts < CLOCK_MIN) return undefined
  const date = new Date(msOf(ts))
  return Number.isNaN(date.getTime()) ? undefined : readableTime(date)
}

/** Includes the day, unless that is today. */
export function readableTime(date: Date): string {
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, '0')}`
  return isToday(date) ? clock : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock}`
}

function two(value: number): string {
  return String(value).padStart(2, '0')
}

function isToday(date: Date): boolean {
  return date.toDateString() === new Date().toDateString()
}

export function readableMs(ms: number): string {
  if (ms < 0) return `−${readableMs(-ms)}`
  if (ms < 1000) return `${ms < 10 ? Number(ms.toFixed(1)) : Math.round(ms)} ms`
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1000)} s`
  if (ms < 172_800_000) return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`
  return `${Math.floor(ms / 86_400_000)} d`
}
