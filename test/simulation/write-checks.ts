import type { Timestamp } from '../../src/timestamp.js'
import { type History, LOG, type TxnHistory } from './history.js'
import type { Committed, Ledger } from './ledger.js'
import { isRaw } from './raw-client.js'
import type { Violations } from './violations.js'

/** Whether what is committed is what clients asked for and were told, whole, once, and in order. */
export function checkWrites(history: History, ledger: Ledger, isDurable: boolean, violations: Violations): void {
  const byId = startsById(ledger)
  for (const txn of history.txns) {
    const [foundTs] = byId.get(txn.id) ?? []
    if (txn.startTs === 0 && foundTs !== undefined) txn.startTs = foundTs
  }
  for (const txn of history.txns) {
    // A crash that took the oracle's mark took all that came after it, and those timestamps are handed out again.
    const isForgotten = !isDurable && history.txns.some((o) => o.startTs === txn.startTs && o.timeline > txn.timeline)
    if (!isForgotten) checkFate(txn, byId.get(txn.id) ?? new Set(), ledger, isDurable, violations)
  }
  checkLostIsSuffix(history, ledger, violations)
  const writers = new Map(history.txns.flatMap((txn) => (txn.kind === 'snapshot' ? [] : [[txn.startTs, txn] as const])))
  for (const key of ledger.keys) if (!isRaw(key)) checkOrder(key, ledger, writers, violations)
  for (const key of ledger.keys) if (key.startsWith('n')) checkCounter(key, ledger, writers, violations)
}

/** Values begin with the id of who wrote them. */
function startsById(ledger: Ledger): Map<number, Set<Timestamp>> {
  const starts = new Map<number, Set<Timestamp>>()
  for (const records of ledger.byStart.values()) {
    for (const { value, startTs, lostIn } of records) {
      const [, id] = /^(\d+)\./.exec(value ?? '') ?? []
      if (id === undefined || lostIn !== undefined) continue
      const known = starts.get(Number(id))
      if (known === undefined) starts.set(Number(id), new Set([startTs]))
      else known.add(startTs)
    }
  }
  return starts
}

function checkFate(
  txn: TxnHistory,
  starts: ReadonlySet<Timestamp>,
  ledger: Ledger,
  isDurable: boolean,
  violations: Violations,
): void {
  if (txn.kind === 'snapshot') return
  if (starts.size > 1) violations.add('twice', `${txn.name} is committed ${starts.size} times: ${[...starts]}`)
  const ever = ledger.byStart.get(txn.startTs) ?? []
  const records = ever.filter(({ lostIn }) => lostIn === undefined)
  if (isDurable && records.length < ever.length) violations.add('lost', `${txn.name} was committed, and is no more`)
  const writes = records.filter(({ type }) => type !== 'lock')
  const isLost = records.length === 0 && (ever.length > 0 || txn.timeline < ledger.timeline)
  if (txn.outcome === 'open' || txn.outcome === 'aborted') {
    if (records.length > 0) violations.add('revived', `${txn.name} is committed: ${printAll(records)}`)
    return
  }
  const expected = txn
    .keysAt(records[0]?.commitTs ?? 0)
    .sort()
    .join(' ')
  const actual = writes
    .map(({ key }) => key)
    .sort()
    .join(' ')
  if (actual === '' && (txn.outcome === 'unknown' || isLost)) return
  if (actual !== expected)
    violations.add('atomicity', `${txn.name} wrote ${expected}; committed are ${printAll(writes)}`)
  const commitTs = new Set(records.map((record) => record.commitTs))
  if (commitTs.size > 1) violations.add('atomicity', `${txn.name} is committed at ${[...commitTs]}`)
  if (txn.outcome === 'committed' && records.length > 0 && !commitTs.has(txn.commitTs))
    violations.add('commit_ts', `${txn.name} was told ${txn.commitTs}, and is committed at ${[...commitTs]}`)
  for (const { key, value } of writes)
    if (key.startsWith(LOG) && value !== txn.stamped)
      violations.add('value', `${txn.name} wrote ${txn.stamped} to ${key}; committed is ${value}`)
    else if (txn.writes.has(key) && txn.writes.get(key) !== value)
      violations.add('value', `${txn.name} wrote ${txn.writes.get(key)} to ${key}; committed is ${value}`)
}

/** What a crash of the machine takes is the latest: whoever began after the end of one that is lost is lost too. */
function checkLostIsSuffix(history: History, ledger: Ledger, violations: Violations): void {
  const hasPut = ({ writes }: TxnHistory): boolean => [...writes.values()].some((value) => value !== undefined)
  const committed = history.txns.filter((txn) => txn.outcome === 'committed' && hasPut(txn))
  // By its values, for its start_ts may have been handed out again.
  const isLost = ({ id, startTs }: TxnHistory): boolean =>
    !ledger.byStart.get(startTs)?.some(({ value, lostIn }) => lostIn === undefined && value?.startsWith(`${id}.`))
  for (let timeline = 0; timeline < ledger.timeline; timeline++) {
    const of = committed.filter((txn) => txn.timeline === timeline)
    const firstLost = Math.min(...of.filter(isLost).map(({ endedAt }) => endedAt))
    const kept = of.find((txn) => txn.beganAt > firstLost && !isLost(txn))
    if (kept !== undefined)
      violations.add(
        'hole',
        `${kept.name} is kept, and ${of.find((t) => t.endedAt === firstLost)?.name}, which had ended before it, is lost`,
      )
  }
}

/** Of two transactions that overlap in time, one at most wrote the key. */
function checkOrder(
  key: string,
  ledger: Ledger,
  txns: ReadonlyMap<Timestamp, TxnHistory>,
  violations: Violations,
): void {
  let before: Committed | undefined
  for (const record of ledger.of(key)) {
    if (record.commitTs <= record.startTs)
      violations.add('commit_ts', `${record.startTs} is committed on ${key} at ${record.commitTs}`)
    // A pessimistic one takes its locks at a later moment than its start, and is held to what it read then.
    const isPessimistic = txns.get(record.startTs)?.kind === 'pessimistic'
    // The end of a lease deletes whatever version is attached to it.
    const isEnd = record.type === 'delete' && !txns.has(record.startTs)
    if (before !== undefined && !isPessimistic && !isEnd && before.commitTs >= record.startTs)
      violations.add(
        'conflict',
        `${record.startTs} wrote ${key}, and so did ${before.startTs}, committed at ${before.commitTs}`,
      )
    before = record
  }
}

/** Each increment is of what the one before it left. */
function checkCounter(
  key: string,
  ledger: Ledger,
  txns: ReadonlyMap<Timestamp, TxnHistory>,
  violations: Violations,
): void {
  let sum = 0
  for (const { value, type, startTs } of ledger.of(key)) {
    if (type !== 'put') continue
    const by = txns.get(startTs)?.increments.get(key) ?? Number.NaN
    if (Number(value) !== sum + by)
      violations.add('counter', `${startTs} incremented ${key} from ${sum} by ${by} to ${value}`)
    sum = Number(value)
  }
}

function printAll(records: readonly Committed[]): string {
  return records.map(({ key, type, value, commitTs }) => `${type} ${key}=${value} at ${commitTs}`).join(', ') || 'none'
}
