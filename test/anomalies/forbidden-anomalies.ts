import type { Isolation, Mode } from './http-transaction.js'
import { type Anomaly, type AnomalyType, checkListAppend, type ListTransaction } from './list-append.js'

const SNAPSHOT_ALLOWS: ReadonlySet<AnomalyType> = new Set<AnomalyType>(['G2', 'G2-realtime'])

/**
 * The anomalies of a history that its isolation forbids. In a pessimistic transaction locking reads are later than the snapshot:
 * the workload hands in both as transactions of their own, and these are serializable.
 */
export function forbiddenAnomalies(
  history: readonly ListTransaction[],
  { mode, isolation }: { readonly mode: Mode; readonly isolation: Isolation },
): readonly Anomaly[] {
  const isWeak = isolation === 'snapshot' && mode === 'optimistic'
  return checkListAppend(history).filter(({ type }) => !(isWeak && SNAPSHOT_ALLOWS.has(type)))
}
