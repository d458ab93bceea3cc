import { groupBy } from '../../bytes/group-by.js'
import { keyText } from '../../bytes/key-text.js'
import { beyondAccess, endsAsDecided, isDecidedBeyond, type MayAccess } from '../../percolator/access.js'
import type { Lock } from '../../percolator/lock.js'
import { type Mutation, type RowView, type TxnRecord, txnRecord } from '../../percolator/row.js'
import type { WriteRecord } from '../../percolator/write.js'
import type { Timestamp } from '../../timestamp.js'

/** @throws KvError `forbidden` when the mutations would end a transaction in a way that the caller may not choose. */
export type AccessGuard = (mutations: readonly Mutation[], found: readonly RowView[]) => void

export interface AccessSource {
  lockOf(key: Uint8Array): Lock | undefined
  historyOf(key: Uint8Array, startTs: Timestamp): Promise<readonly WriteRecord[]>
}

const UNDECIDED: TxnRecord = { kind: 'none', overlapped: undefined }

/**
 * Prepares the check for a caller whose token permits only some keys. Looks at the locks that the transaction at `startTs` holds
 * on `keys`. If the transaction has keys that the caller may not access, reads the record of its primary.
 *
 * No other request may change `keys` until the guard has run. Primaries may change: an ended transaction stays ended, and the
 * list of keys in a prewritten primary stays the same.
 */
export async function accessGuard(
  source: AccessSource,
  keys: readonly Uint8Array[],
  startTs: Timestamp,
  mayAccess: MayAccess,
): Promise<AccessGuard> {
  const within = new Set<string>()
  const primaries = new Map<string, Uint8Array>()
  /** By kind of commit and primary. Saves a walk over the primary's list of keys per lock. */
  const known = new Map<string, boolean>()
  for (const key of keys) {
    const lock = source.lockOf(key)
    if (lock?.startTs !== startTs) continue
    const primary = keyText(lock.primary)
    const txn = `${lock.useAsyncCommit} ${primary}`
    const isBeyond = known.get(txn) ?? isDecidedBeyond(lock, source.lockOf(lock.primary), mayAccess)
    known.set(txn, isBeyond)
    if (isBeyond) primaries.set(primary, lock.primary)
    else within.add(keyText(key))
  }

  const records = new Map<string, TxnRecord>()
  for (const [text, primary] of primaries)
    records.set(text, txnRecord(await source.historyOf(primary, startTs), startTs))

  return (mutations, found) => {
    if (mutations.length === 0) return
    const mutationsOf = groupBy(mutations, ({ key }) => keyText(key))
    for (const { key, lock } of found) {
      const text = keyText(key)
      if (lock?.startTs !== startTs || within.has(text)) continue
      const record = records.get(keyText(lock.primary)) ?? UNDECIDED
      if (!endsAsDecided(lock, mutationsOf.get(text) ?? [], record)) throw beyondAccess(key, startTs)
    }
  }
}
