import { sleep } from './sleep.js'

/** After each step background work pauses for this many times the time of the step, so it runs a fifth of the time. */
const REST = 4
/** Steps take longer when clients write much. The limit lets the work keep up with them. */
const REST_MS_MAX = 20

/** Slows background work down so that it does not disturb other requests. Returns early when the signal aborts. */
export function rest(workedMs: number, signal?: AbortSignal): Promise<void> {
  return sleep(Math.min(REST * workedMs, REST_MS_MAX), signal).catch(() => {})
}
