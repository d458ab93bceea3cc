import type { Timestamp } from '../../src/timestamp.js'
import type { History, TxnHistory } from './history.js'
import { KEY, LEASES } from './lease-holder.js'
import type { LeaseBooks } from './lease-ledger.js'
import type { Committed, Ledger } from './ledger.js'
import type { Violations } from './violations.js'

/**
 * Whether each version is attached to the lease that its writer said, and the end of each lease deleted the keys whose present versions were
 * attached to it, and no others, in one transaction.
 */
export function checkAttached(history: History, ledger: Ledger, leases: LeaseBooks, violations: Violations): void {
  const writers = new Map(history.txns.flatMap((txn) => (txn.kind === 'snapshot' ? [] : [[txn.startTs, txn] as const])))
  const ends = new Map<Timestamp, Committed>()
  for (const key of ledger.keys) {
    if (!key.startsWith(KEY)) continue
    let before: Committed | undefined
    for (const record of ledger.of(key)) {
      if (record.type === 'lock') continue
      const writer = writers.get(record.startTs)
      if (writer === undefined) checkEnd(record, before, ends, violations)
      else checkFence(record, before, writer, violations)
      before = record
    }
    for (const { fence, deletedTs } of termsOf(leases)) {
      const newest = ledger.newest(key, { ts: deletedTs, timeline: ledger.timeline })
      if (newest?.type === 'put' && newest.leaseFence === fence)
        violations.add(
          'attached',
          `${key} at ${newest.commitTs} is attached to ${fence}, whose keys were deleted by ${deletedTs}`,
        )
    }
  }
}

/** A next grant comes after the end of the last one. */
function termsOf(leases: LeaseBooks): { readonly fence: Timestamp; readonly deletedTs: Timestamp }[] {
  return LEASES.flatMap((lease) => {
    const terms = leases.termsOf(lease)
    return terms.map(({ fence, deletedTs }, i) => ({
      fence,
      deletedTs: Math.min(deletedTs, terms[i + 1]?.fence ?? Number.POSITIVE_INFINITY),
    }))
  })
}

function checkFence(
  record: Committed,
  before: Committed | undefined,
  writer: TxnHistory,
  violations: Violations,
): void {
  const { key, commitTs, type, leaseFence } = record
  const kept = writer.kept.has(key) ? (before?.leaseFence ?? 0) : 0
  const expected = type === 'put' ? (writer.attached.get(key) ?? kept) : 0
  if (leaseFence !== expected)
    violations.add(
      'attached',
      `${writer.name} wrote ${key} at ${commitTs} attached to ${leaseFence}, and not to ${expected}`,
    )
}

/** Nobody else deletes keys of these. */
function checkEnd(
  { key, type, commitTs, startTs }: Committed,
  before: Committed | undefined,
  ends: Map<Timestamp, Committed>,
  violations: Violations,
): void {
  const fence = before?.leaseFence ?? 0
  if (type !== 'delete' || fence === 0) {
    violations.add('attached', `${startTs} wrote a ${type} of ${key} at ${commitTs}, where nothing was attached`)
    return
  }
  const other = ends.get(fence)
  if (other !== undefined && other.commitTs !== commitTs)
    violations.add(
      'attached',
      `${key} and ${other.key}, attached to ${fence}, are deleted at ${commitTs} and ${other.commitTs}`,
    )
  if (before !== undefined) ends.set(fence, { ...before, commitTs })
}
