import { sleep } from './sleep.js'

/** After each step background work rests this many times as long as the step took, so it works a fifth of the time. */
const REST = 4
/** Steps take longer when clients write a lot. The limit lets the work keep up with them. */
const REST_MS_MAX = 20

/** Slows background work down so that it does not disturb other requests. Returns early when the signal is aborted. */
export function rest(workedMs: number, signal?: AbortSignal): Promise<void> {
  return sleep(Math.min(REST * workedMs, REST_MS_MAX), signal).catch(() => {})
}
