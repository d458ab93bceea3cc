import { Backoff } from '../../coordinator/backoff.js'
import { isKvError } from '../../errors/kv-error.js'
import type { DbBackend } from '../db-backend.js'

/** Pauses while the database is away. */
const PAUSE_MS_FIRST = 100
const PAUSE_MS_MAX = 5000

/** A stream that ends within this time, without an item, was cut. */
const CUT_MS_MAX = 1000

/** Reported to `onError`: the server answers, but each stream ends at once. */
export class StreamCut extends Error {
  override readonly name = 'StreamCut'
  readonly code = 'stream_cut'

  /** @param times number of such streams in a row. */
  constructor(readonly times: number) {
    super(`the stream was cut before anything arrived${times === 1 ? '' : `, ${times} times`}`)
  }
}

export interface ReconnectOptions {
  readonly signal: AbortSignal
  readonly onError?: ((error: unknown) => void) | undefined
}

/**
 * Yields the items of a stream that is opened again whenever it ends, until the signal is aborted. Waits for a database that is
 * away, unless it was never reached.
 * @param open opens a stream that continues after the last item. @throws errors that another attempt does not mend.
 */
export async function* reconnecting<T>(
  { during, isAway }: Pick<DbBackend, 'during' | 'isAway'>,
  open: () => AsyncGenerator<T, void>,
  { signal, onError }: ReconnectOptions,
): AsyncGenerator<T, void, undefined> {
  let pauses = new Backoff(PAUSE_MS_FIRST, PAUSE_MS_MAX)
  let cuts = 0
  for (let wasReached = false; ; ) {
    const stream = open()
    const openedAt = performance.now()
    let isEmpty = true
    try {
      for (;;) {
        const { done, value } = await during(() => stream.next())
        if (signal.aborted) return
        wasReached = true
        if (done === true) break
        const isHeartbeat = Array.isArray(value) && value.length === 0
        if (!isHeartbeat || performance.now() - openedAt >= CUT_MS_MAX) {
          pauses = new Backoff(PAUSE_MS_FIRST, PAUSE_MS_MAX)
          isEmpty = false
        }
        yield value
      }
      cuts = isEmpty && performance.now() - openedAt < CUT_MS_MAX ? cuts + 1 : 0
      if (cuts > 0) onError?.(new StreamCut(cuts))
    } catch (error) {
      if (signal.aborted) return
      // A server that does not answer in time hangs, and may recover.
      if (!wasReached || !(isAway(error) || isKvError(error, 'deadline_exceeded'))) throw error
      onError?.(error)
    } finally {
      await stream.return()
    }
    await pauses.wait(Number.POSITIVE_INFINITY, signal).catch(() => {})
    if (signal.aborted) return
  }
}
