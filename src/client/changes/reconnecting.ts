import { Backoff } from '../../coordinator/backoff.js'
import type { DbHome } from '../db-home.js'

/** Pauses while the database is away. */
const PAUSE_MS_FIRST = 100
const PAUSE_MS_MAX = 5000

export interface ReconnectOptions {
  readonly signal: AbortSignal
  readonly onError?: ((error: unknown) => void) | undefined
}

/**
 * The items of a stream that is opened again whenever it ends, until the signal is aborted. A database that is away is waited for,
 * unless it was never reached.
 * @param open makes a stream that goes on behind the last item. @throws the errors that another try does not mend.
 */
export async function* reconnecting<T>(
  { during, isAway }: Pick<DbHome, 'during' | 'isAway'>,
  open: () => AsyncGenerator<T, void>,
  { signal, onError }: ReconnectOptions,
): AsyncGenerator<T, void, undefined> {
  let pauses = new Backoff(PAUSE_MS_FIRST, PAUSE_MS_MAX)
  for (let wasReached = false; ; ) {
    const stream = open()
    try {
      for (;;) {
        const { done, value } = await during(() => stream.next())
        if (signal.aborted) return
        wasReached = true
        if (done === true) break
        pauses = new Backoff(PAUSE_MS_FIRST, PAUSE_MS_MAX)
        yield value
      }
    } catch (error) {
      if (signal.aborted) return
      if (!wasReached || !isAway(error)) throw error
      onError?.(error)
    } finally {
      await stream.return()
    }
    await pauses.wait(Number.POSITIVE_INFINITY, signal).catch(() => {})
    if (signal.aborted) return
  }
}
