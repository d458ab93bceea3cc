/**
 * The report says how far the index is. Any worker could write it, and one of them does: the one that holds the lease. When it dies,
 * another one is granted the lease within seconds and goes on.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { pending } from './observers.mjs'

/** @typedef {import('perkv/client').Db} Db */

const REPORT = 'report/index'
const LEASE = 'index/report'
/** After so long without a sign of life another worker reports. */
const TTL_MS = 3000
const EVERY_MS = 250

/**
 * Reports whenever it is this worker's turn, until the signal stops it.
 * @param {Db} db @param {{ signal: AbortSignal, onError: (error: unknown) => void }} options
 */
export async function keepReporting(db, { signal, onError }) {
  while (!signal.aborted) {
    await reportUnderLease(db, signal).catch((error) => {
      if (!signal.aborted) onError(error) // Such as: the lease was lost.
    })
    await sleep(EVERY_MS, undefined, { signal }).catch(() => {})
  }
}

/** @param {Db} db @param {AbortSignal} signal */
async function reportUnderLease(db, signal) {
  const lease = await db.lease(LEASE, { ttlMs: TTL_MS, waitMs: Number.POSITIVE_INFINITY, signal })
  try {
    while (!signal.aborted) {
      const report = JSON.stringify({ documents: await db.count({ prefix: 'derived/' }), pending: await pending(db) })
      // A worker that was stopped for a while, and does not know that another one reports now, overwrites nothing.
      await db.transaction(
        async (txn) => {
          if ((await txn.get(REPORT)) !== report) await txn.put(REPORT, report)
        },
        { leases: [lease] },
      )
      await sleep(EVERY_MS, undefined, { signal }).catch(() => {})
    }
  } finally {
    await lease.release()
  }
}
