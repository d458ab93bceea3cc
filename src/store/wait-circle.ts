import { KvError } from '../errors/kv-error.js'
import { printKey } from '../errors/print-key.js'
import type { WaitForEntry } from '../errors/registry.js'
import type { Timestamp } from '../timestamp.js'

/**
 * The shortest circle that a new wait closes in the wait-for graph. A transaction that waits for its own lock, which a concurrent
 * request took, closes none.
 * @param waitsOf returns the waits of a transaction; the new one may be missing.
 * @param lookedAtMax limit on the transactions visited. Larger circles are not found.
 * @returns the circle from the holder on, as TiKV reports it: first the holder's wait; each entry's `waitForTxn` is the next
 *   entry's `txn`; the last one is the new wait.
 * @see TiKV `server/lock_manager/deadlock.rs`.
 */
export function waitCircle(
  wait: WaitForEntry,
  waitsOf: (txn: Timestamp) => Iterable<WaitForEntry>,
  lookedAtMax = Number.POSITIVE_INFINITY,
): readonly WaitForEntry[] | undefined {
  if (wait.waitForTxn === wait.txn) return undefined
  /** The wait by which the search reached each transaction; undefined for the holder, where it starts. */
  const reachedBy = new Map<Timestamp, WaitForEntry | undefined>([[wait.waitForTxn, undefined]])
  // Breadth first: a Map is iterated in order of insertion, including entries that are added during the iteration.
  for (const txn of reachedBy.keys())
    for (const each of waitsOf(txn)) {
      if (reachedBy.has(each.waitForTxn)) continue
      if (reachedBy.size >= lookedAtMax) return undefined
      reachedBy.set(each.waitForTxn, each)
      if (each.waitForTxn !== wait.txn) continue
      const circle = [wait]
      for (let step: WaitForEntry | undefined = each; step !== undefined; step = reachedBy.get(step.txn))
        circle.push(step)
      return circle.reverse()
    }
  return undefined
}

export function deadlock(circle: readonly WaitForEntry[]): KvError<'deadlock'> {
  const { txn, waitForTxn, key } = circle.at(-1) as WaitForEntry
  return new KvError(
    'deadlock',
    `the transaction at ${txn} cannot wait for key ${printKey(key)}: the transaction at ${waitForTxn}, which ` +
      `holds its lock, waits for it, ${circle.length === 2 ? 'directly' : 'through others'}`,
    { lockTs: waitForTxn, lockKey: key, waitChain: circle },
  )
}
