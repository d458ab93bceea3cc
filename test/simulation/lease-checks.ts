import type { History } from './history.js'
import { LEASES } from './lease-holder.js'
import type { LeaseLedger } from './lease-ledger.js'
import type { Ledger } from './ledger.js'
import type { Violations } from './violations.js'

/** Whether all that was committed under a fence lies between that grant and the next one of its lease. */
export function checkLeases(history: History, ledger: Ledger, leases: LeaseLedger, violations: Violations): void {
  for (const lease of LEASES) {
    const fences = leases.fencesOf(lease)
    for (const txn of history.txns) {
      const fence = txn.leases.find((each) => each.lease === lease)?.fence
      if (fence === undefined || txn.startTs === 0) continue
      const next = fences.find((each) => each > fence) ?? Number.POSITIVE_INFINITY
      for (const { key, commitTs } of ledger.byStart.get(txn.startTs) ?? []) {
        if (commitTs <= fence)
          violations.add('fence', `${txn.name} is committed on ${key} at ${commitTs}, before its fence ${fence}`)
        if (commitTs >= next)
          violations.add(
            'fence',
            `${txn.name} is committed on ${key} at ${commitTs} under ${fence}; ${lease} was granted under ${next}`,
          )
      }
    }
  }
}
