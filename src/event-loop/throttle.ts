import { sleep } from './sleep.js'

/** After each step background work pauses for this many times the time of the step, so it runs a fifth of the time. */
const PAUSE_FACTOR = 4
/** Steps take longer when clients write much. The limit lets the work keep up with them. */
const PAUSE_MS_MAX = 20

/** Slows background work down so that it does not disturb other requests. Returns early when the signal aborts. */
export function throttle(workedMs: number, signal?: AbortSignal): Promise<void> {
  return sleep(Math.min(PAUSE_FACTOR * workedMs, PAUSE_MS_MAX), signal).catch(() => {})
}
