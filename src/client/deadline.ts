import { isKvError, KvError } from '../errors/kv-error.js'
import { onAbort } from '../event-loop/on-abort.js'

/**
 * A call ends at the latest this long after its time. Within it a server can still report how a write has ended, and a
 * transaction can release its locks.
 */
const GRACE_MS = 250

export interface Deadline {
  /** Aborts when the time has passed or the caller's signal aborts. undefined: there is neither. */
  readonly signal: AbortSignal | undefined
  /**
   * Waits for a call until a moment after the time, or for that moment only, where the time has passed already.
   * @param giveUp makes the result of a call that has not ended by then; the call goes on without its caller.
   */
  within<T>(call: Promise<T>, giveUp: (error: KvError) => T): Promise<T>
  /** Call when nothing waits any more. */
  end(): void
}

/** Not AbortSignal.any: in Node 20 its result stays in memory as long as the caller's signal. */
export function deadlineOf(timeoutMs: number | undefined, given: AbortSignal | undefined, graceMs = 0): Deadline {
  if (timeoutMs === undefined) return { signal: given, within: (call) => call, end: () => {} }
  const abort = new AbortController()
  const { signal } = abort
  const follow = (): void => abort.abort(given?.reason)
  if (given?.aborted) follow()
  const unfollow = onAbort(given, follow)
  const stop = (): void => {
    clearTimeout(timer)
    unfollow()
  }
  const error = new KvError('deadline_exceeded', `the call has not ended within ${timeoutMs} ms`, {})
  const timer = setTimeout(() => {
    stop()
    abort.abort(error)
  }, timeoutMs + graceMs)
  const isOver = (): boolean => signal.reason === error
  return { signal, within: (call, giveUp) => within(signal, isOver, call, () => giveUp(error)), end: stop }
}

function within<T>(signal: AbortSignal, isOver: () => boolean, call: Promise<T>, giveUp: () => T): Promise<T> {
  return new Promise((resolve, reject) => {
    let timer: ReturnType<typeof setTimeout> | undefined
    const leave = (): void => {
      end()
      try {
        resolve(giveUp())
      } catch (error) {
        reject(error)
      }
    }
    const wait = (): void => {
      if (isOver()) timer = setTimeout(leave, GRACE_MS)
    }
    const end = (): void => {
      clearTimeout(timer)
      unlisten()
    }
    const unlisten = onAbort(signal, wait)
    if (signal.aborted) wait()
    call.finally(end).then(resolve, reject)
  })
}

/**
 * Runs a call with the signal of its deadline.
 * @param errorOf makes the rejection of a call that ignores the signal. Default: the error of the deadline.
 */
export async function withDeadline<T>(
  timeoutMs: number | undefined,
  given: AbortSignal | undefined,
  call: (signal: AbortSignal | undefined) => Promise<T>,
  errorOf: (error: KvError) => unknown = (error) => error,
): Promise<T> {
  const { signal, within, end } = deadlineOf(timeoutMs, given)
  try {
    return await within(call(signal), (error) => {
      throw errorOf(error)
    })
  } finally {
    end()
  }
}

/** Runs a write that can end in time by itself; it gets a moment for that before the signal aborts. */
export async function writeWithin<T>(
  timeoutMs: number | undefined,
  given: AbortSignal | undefined,
  write: (signal: AbortSignal | undefined) => Promise<T>,
): Promise<T> {
  const { signal, within, end } = deadlineOf(timeoutMs, given, GRACE_MS)
  try {
    return await within(write(signal), (error) => {
      throw inDoubt(error)
    })
  } finally {
    end()
  }
}

/** Turns a deadline's error into one that says that the call may have taken effect, or still may. */
export function inDoubt(error: unknown): unknown {
  if (!isKvError(error, 'deadline_exceeded')) return error
  const unknown = new KvError('deadline_exceeded', `${error.message}, and may have taken effect`, {}, { cause: error })
  return Object.assign(unknown, { mayHaveTakenEffect: true })
}
