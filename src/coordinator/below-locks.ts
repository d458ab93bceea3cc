import { groupBy } from '../bytes/group-by.js'
import type { KeyRange } from '../bytes/key-range.js'
import type { PercolatorApi } from '../percolator/api.js'
import { resolvedBelow } from '../percolator/resolved.js'
import type { Timestamp } from '../timestamp.js'
import { Backoff } from './backoff.js'
import { locksIn, txnText } from './found-locks.js'
import type { Resolver } from './lock-resolver.js'

/**
 * How long a read of a whole range waits for live locks before it takes a snapshot below them. Most commits take less.
 */
export const BELOW_LOCKS_AFTER_MS = 250

/**
 * @returns the newest snapshot up to `ts` that no present lock of the range blocks. Ends the locks of finished transactions, and
 *   waits up to `waitMs` for the others. A transaction that began before may still lock a key later and block the snapshot.
 */
export async function belowLocks(
  api: Pick<PercolatorApi, 'scanLock' | 'now'>,
  resolver: Resolver,
  ts: Timestamp,
  range: KeyRange,
  { waitMs, signal }: { readonly waitMs: number; readonly signal?: AbortSignal | undefined },
): Promise<Timestamp> {
  const deadline = performance.now() + waitMs
  const backoff = new Backoff()
  for (;;) {
    let readable = ts
    for await (const locks of locksIn(api, { ...range, maxTs: ts })) {
      const blocking = locks.filter((lock) => resolvedBelow(lock) !== undefined)
      for (const ofTxn of groupBy(blocking, txnText).values()) {
        const bounds = ofTxn.flatMap((lock) => resolvedBelow(lock) ?? [])
        const bound = Math.min(...bounds)
        signal?.throwIfAborted()
        if (bound < ts && !(await resolver.resolve(ofTxn, await api.now()))) readable = Math.min(readable, bound)
      }
    }
    const leftMs = deadline - performance.now()
    if (readable === ts || leftMs <= 0) return readable
    await backoff.wait(leftMs, signal)
  }
}
