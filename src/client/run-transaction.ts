import { isAckRefused } from '../coordinator/ack-refused.js'
import { Backoff } from '../coordinator/backoff.js'
import { isRetryable } from '../errors/kv-error.js'
import type { OpenTxn, Txn } from './txn.js'

type Body<T> = (txn: Txn) => T | Promise<T>

/**
 * Runs `body` in a transaction and commits it. After a lost race runs `body` again in a new transaction, with back-off.
 * @param retries further attempts after the first one.
 * @throws the error of `body`; the error of the last attempt; Undetermined, and the refusal of an acknowledgement, without
 *   another attempt.
 */
export async function runTransaction<T>(
  begin: () => Promise<OpenTxn>,
  body: Body<T>,
  retries: number,
  signal: AbortSignal | undefined,
): Promise<T> {
  const backoff = new Backoff()
  for (let left = retries; ; left--) {
    const txn = await begin()
    try {
      return await runOnce(txn, body)
    } catch (error) {
      // The same claim would be refused again.
      if (left <= 0 || !isRetryable(error) || isAckRefused(error)) throw error
    }
    await backoff.wait(Number.POSITIVE_INFINITY, signal)
  }
}

export async function runOnce<T>(txn: OpenTxn, body: Body<T>): Promise<T> {
  try {
    const result = await body(txn)
    await txn.commit()
    return result
  } catch (error) {
    await txn.rollback()
    throw error
  }
}
