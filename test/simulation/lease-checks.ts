import type { History } from './history.js'
import { LEASES } from './lease-holder.js'
import type { LeaseBooks } from './lease-ledger.js'
import type { Ledger } from './ledger.js'
import type { Violations } from './violations.js'

/** Whether all that was committed under a fence lies between that grant and its release, or the next grant of its lease. */
export function checkLeases(history: History, ledger: Ledger, leases: LeaseBooks, violations: Violations): void {
  for (const lease of LEASES) {
    const terms = leases.termsOf(lease)
    for (const txn of history.txns) {
      const fence = txn.leases.find((each) => each.lease === lease)?.fence
      if (fence === undefined || txn.startTs === 0) continue
      const next = terms.find((each) => each.fence > fence)?.fence ?? Number.POSITIVE_INFINITY
      const overTs = terms.find((each) => each.fence === fence)?.overTs ?? Number.POSITIVE_INFINITY
      for (const { key, commitTs } of ledger.byStart.get(txn.startTs) ?? []) {
        const is = `${txn.name} is committed on ${key} at ${commitTs}`
        if (commitTs <= fence) violations.add('fence', `${is}, before its fence ${fence}`)
        if (commitTs >= next) violations.add('fence', `${is} under ${fence}; ${lease} was granted under ${next}`)
        else if (commitTs >= overTs)
          violations.add('fence', `${is} under ${fence}; ${lease} was released before ${overTs}`)
      }
    }
  }
}
