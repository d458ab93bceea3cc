import type { Run } from './cell-ledger.js'
import type { History, TxnHistory } from './history.js'
import type { Ledger } from './ledger.js'
import type { Violations } from './violations.js'

/**
 * Whether the runs of observers that are committed are those of clients, each with its effects, once; and whether everything that
 * had to be run has been. The rules of each cell are checked as its batches come: see `CellLedger`.
 */
export function checkRuns(history: History, ledger: Ledger, violations: Violations): void {
  const { cells } = ledger
  for (const restless of cells.restless()) violations.add('at rest', `not all is covered: ${restless}`)
  for (const untold of cells.untold(history.passedTs, ledger.keys))
    violations.add('at rest', `no run has seen the expiry of ${untold}`)
  // What a crash took may have been acknowledged, and its timestamps are handed out again.
  if (ledger.timeline > 0) return
  const byStart = new Map<number, Run[]>()
  for (const run of cells.runs) byStart.set(run.ack.startTs, [...(byStart.get(run.ack.startTs) ?? []), run])
  for (const txn of history.txns) {
    if (txn.kind === 'snapshot') continue
    checkTransaction(txn, byStart.get(txn.startTs) ?? [], ledger, violations)
    byStart.delete(txn.startTs)
  }
  // A skip is a transaction of the server there.
  for (const startTs of ledger.isShared ? [] : byStart.keys()) violations.add('run', `nobody ran the run of ${startTs}`)
  for (const { observer, key, ts, floor } of history.notified)
    if (cells.coveredTo(observer, key) < cells.notifiedAt(observer, key, floor, ts))
      violations.add('at rest', `no run has seen the notification of ${key} for ${observer} at ${ts}`)
}

function checkTransaction(txn: TxnHistory, runs: readonly Run[], ledger: Ledger, violations: Violations): void {
  const print = (cells: readonly { observer: string; key: string }[]): string =>
    cells
      .map(({ observer, key }) => `${key} for ${observer}`)
      .sort()
      .join(', ') || 'nothing'
  const isCommitted = (ledger.byStart.get(txn.startTs) ?? []).length > 0 && txn.startTs > 0
  const expected = isCommitted ? txn.acks : []
  if (print(runs) !== print(expected))
    violations.add('run', `${txn.name} acknowledges ${print(expected)}; acknowledged is ${print(runs)}`)
  for (const { observer, key, ack, previousTs } of runs) {
    const fence = txn.acks.find((each) => each.observer === observer && each.key === key)?.fence ?? 0
    const seen = txn.kind === 'one_shot' ? fence : txn.startTs
    if (ack.ackTs !== seen) violations.add('run', `${txn.name} has seen ${seen}, and acknowledged ${ack.ackTs}`)
    if (Math.min(fence, seen) < previousTs)
      violations.add('run', `${txn.name} was claimed at ${fence}, before the run that committed at ${previousTs}`)
    const commits = new Set(ledger.byStart.get(txn.startTs)?.map(({ commitTs }) => commitTs))
    if (!commits.has(ack.commitTs))
      violations.add('run', `${txn.name} is committed at ${[...commits]}, and acknowledged at ${ack.commitTs}`)
  }
}
