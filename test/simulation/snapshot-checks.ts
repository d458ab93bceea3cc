import { TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import type { History, KeyRead, LatestRead, RangeRead, TxnHistory } from './history.js'
import type { Committed, Ledger, SnapshotAt } from './ledger.js'
import type { Violations } from './violations.js'

/** Whether what clients saw is what the ledger says they had to see. */
export function checkReads(history: History, ledger: Ledger, violations: Violations): void {
  for (const txn of history.txns) {
    if (txn.startTs > 0) checkSnapshot(txn, ledger, violations)
    if (txn.outcome === 'committed') checkAtCommit(txn, ledger, violations)
  }
  for (const read of history.latestReads) checkLatest(read, ledger, violations)
}

function checkSnapshot(txn: TxnHistory, ledger: Ledger, violations: Violations): void {
  const at = { ts: txn.startTs, timeline: txn.timeline, without: txn.startTs }
  for (const read of txn.reads) {
    const expected = ledger.visible(read.key, at)
    if (!isSeen(expected, read))
      violations.add('snapshot', `${txn.name} read ${read.value} of ${read.key}, where there was ${print(expected)}`)
  }
  for (const range of txn.ranges) {
    const expected = pairsOf(ledger, range, at)
    const seen = range.pairs.map(({ key, value }) => `${key}=${value}`).join(' ')
    if (expected !== seen) violations.add('snapshot', `${txn.name} scanned ${seen}, where there was ${expected}`)
  }
  for (const { key, commitTs } of txn.checks) {
    const found = ledger.visible(key, at)
    const version = found?.type === 'put' ? found.commitTs : 0
    if (version !== commitTs)
      violations.add('check', `${txn.name} passed the check that ${key} is at ${commitTs}; it was at ${version}`)
  }
}

function checkAtCommit(txn: TxnHistory, ledger: Ledger, violations: Violations): void {
  const { startTs, commitTs, timeline } = txn
  if (commitTs <= startTs) return // It wrote nothing.
  const at = { ts: commitTs, timeline, without: startTs }
  for (const read of txn.lockedReads) {
    const expected = ledger.visible(read.key, at)
    // It was judged at its for_update_ts, and may have expired since.
    if (!isSeen(expected, read) && !isSeen(ledger.newest(read.key, at), read))
      violations.add(
        'lock',
        `${txn.name} read ${read.value} of ${read.key} for update, and commits over ${print(expected)}`,
      )
  }
  if (txn.isolation !== 'serializable') return
  for (const read of txn.reads) {
    const expected = ledger.visible(read.key, at)
    if (!isSeen(expected, read))
      violations.add(
        'serializable',
        `${txn.name} read ${read.value} of ${read.key}, and commits after ${print(expected)}`,
      )
  }
  for (const range of txn.ranges) {
    const before = pairsOf(ledger, range, { ...at, ts: startTs })
    const after = pairsOf(ledger, range, at)
    if (before !== after) violations.add('serializable', `${txn.name} scanned ${before}, and commits after ${after}`)
  }
}

/**
 * All of the answer stood in the database together at one moment, and not before what was known already. (The moment is no
 * timestamp: a transaction that has its commit_ts and not yet committed is passed over, whoever commits above it meanwhile.)
 */
function checkLatest(read: LatestRead, ledger: Ledger, violations: Violations): void {
  const { keys, found, floors, timeline } = read
  const isAt = (moment: number, ts = TIMESTAMP_MAX): boolean =>
    keys.every((key) => {
      const record = ledger.newest(key, { ts, timeline, moment })
      const seen = found.get(key)
      // The server's clock says whether it has expired.
      if (seen === undefined) return record?.type !== 'put' || record.expireTs !== 0
      return record?.commitTs === seen.commitTs && record.value === seen.value
    })
  const bornAt = (key: string, commitTs: Timestamp): number =>
    ledger.newest(key, { ts: commitTs, timeline })?.bornAt ?? 0
  const since = Math.max(
    ...keys.map((key) => bornAt(key, Math.max(floors.get(key) ?? 0, found.get(key)?.commitTs ?? 0))),
  )
  if (ledger.isShared) {
    // Rows do not change together, so what stands there is of one timestamp at most.
    const sinceTs = Math.max(...[...floors.values()], ...[...found.values()].map(({ commitTs }) => commitTs))
    const later = keys.flatMap((key) => ledger.of(key).map(({ commitTs }) => commitTs)).filter((ts) => ts > sinceTs)
    if ([sinceTs, ...later].some((ts) => isAt(read.moment, ts))) return
  } else for (let moment = since; moment <= read.moment; moment++) if (isAt(moment)) return
  const seen = keys.map((key) => `${key}=${found.get(key)?.value} at ${found.get(key)?.commitTs ?? 0}`).join(', ')
  violations.add('latest', `a read of the latest version saw ${seen}; known before were ${[...floors]}`)
}

function isSeen(record: Committed | undefined, { value }: KeyRead): boolean {
  return (record?.type === 'put' ? record.value : undefined) === value
}

function pairsOf(ledger: Ledger, { start, end, limit, reverse, own }: RangeRead, at: SnapshotAt): string {
  const keys = [...new Set([...ledger.keys, ...own.keys()])].filter((key) => key >= start && key < end).sort()
  const pairs: string[] = []
  for (const key of reverse ? keys.reverse() : keys) {
    const value = own.has(key) ? own.get(key) : ledger.visible(key, at)?.value
    if (value !== undefined) pairs.push(`${key}=${value}`)
  }
  return pairs.slice(0, limit).join(' ')
}

function print(record: Committed | undefined): string {
  return record === undefined ? 'nothing' : `${record.type} ${record.value} of ${record.startTs} at ${record.commitTs}`
}
