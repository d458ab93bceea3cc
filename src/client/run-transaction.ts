import { Backoff } from '../coordinator/backoff.js'
import { isRetryable } from '../errors/kv-error.js'
import type { OpenTxn, Txn } from './txn.js'

/**
 * Runs `body` in a transaction and commits it; after a race that was lost, again in a new one, with back-off. Nothing of
 * a lost try is kept: `body` reads and writes anew.
 * @param retries tries after the first.
 * @throws what `body` throws; what the last try failed with; Undetermined, without another try.
 */
export async function runTransaction<T>(
  begin: () => Promise<OpenTxn>,
  body: (txn: Txn) => T | Promise<T>,
  retries: number,
  signal: AbortSignal | undefined,
): Promise<T> {
  const backoff = new Backoff()
  for (let left = retries; ; left--) {
    const txn = await begin()
    try {
      const result = await body(txn)
      await txn.commit()
      return result
    } catch (error) {
      await txn.rollback()
      if (left <= 0 || !isRetryable(error)) throw error
    }
    await backoff.wait(Number.POSITIVE_INFINITY, signal)
  }
}
