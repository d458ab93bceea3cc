import { Backoff } from '../coordinator/backoff.js'
import { isRetryable } from '../errors/kv-error.js'
import type { OpenTxn, Txn } from './txn.js'

/**
 * Runs `body` in a transaction and commits it. After a lost race runs `body` again in a new transaction, with back-off.
 * @param retries further tries after the first one.
 * @throws the error of `body`; the error of the last try; Undetermined, without another try.
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
