import { KvError } from '../errors/kv-error.js'

export interface Deadline {
  /** Aborts when the time has passed, and when the caller's signal does. undefined: there is neither. */
  readonly signal: AbortSignal | undefined
  /** Must be called when nothing waits any more. */
  end(): void
}

/** Not AbortSignal.any: in Node 20 its result stays in memory as long as the caller's signal. */
export function deadlineOf(timeoutMs: number | undefined, signal: AbortSignal | undefined): Deadline {
  if (timeoutMs === undefined) return { signal, end: () => {} }
  const abort = new AbortController()
  const follow = (): void => abort.abort(signal?.reason)
  if (signal?.aborted) follow()
  signal?.addEventListener('abort', follow, { once: true })
  const end = (): void => {
    clearTimeout(timer)
    signal?.removeEventListener('abort', follow)
  }
  const timer = setTimeout(() => {
    end()
    abort.abort(new KvError('deadline_exceeded', `the call has not ended within ${timeoutMs} ms`, {}))
  }, timeoutMs)
  return { signal: abort.signal, end }
}

/** Runs a call with the signal of its deadline. */
export async function withDeadline<T>(
  timeoutMs: number | undefined,
  given: AbortSignal | undefined,
  call: (signal: AbortSignal | undefined) => Promise<T>,
): Promise<T> {
  const { signal, end } = deadlineOf(timeoutMs, given)
  try {
    return await call(signal)
  } finally {
    end()
  }
}
