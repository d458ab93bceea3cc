import { isKvError, KvError } from '../errors/kv-error.js'
import { onAbort } from '../event-loop/on-abort.js'

/**
 * A call ends this long after its time at the latest, whatever it waits for. Before that, a server gets the time to say how a write has
 * ended, and a transaction to release its locks.
 */
const GRACE_MS = 250

export interface Deadline {
  /** Aborts when the time has passed, and when the caller's signal does. undefined: there is neither. */
  readonly signal: AbortSignal | undefined
  /**
   * Waits for a call no longer than until a moment after the time, or from now on, where the time has passed already.
   * @param giveUp makes the outcome of a call that has not ended by then. It goes on without its caller.
   */
  within<T>(call: Promise<T>, giveUp: (error: KvError) => T): Promise<T>
  /** Must be called when nothing waits any more. */
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
 * @param errorOf what a call is rejected with that takes no notice of the signal. Default: the error of the deadline.
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

/** The call ends its write in time by itself, where it still can, and gets a moment for that before the signal aborts. */
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

/** The error of a call that may have taken effect, or may still, if it is that of a deadline. */
export function inDoubt(error: unknown): unknown {
  if (!isKvError(error, 'deadline_exceeded')) return error
  const unknown = new KvError('deadline_exceeded', `${error.message}, and may have taken effect`, {}, { cause: error })
  return Object.assign(unknown, { mayHaveTakenEffect: true })
}
