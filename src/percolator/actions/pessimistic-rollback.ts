import type { Timestamp } from '../../timestamp.js'
import { done, type Outcome, type RowView } from '../row.js'

/**
 * Gives up one key's pessimistic lock while its transaction goes on. No record is left, and the transaction may lock the key
 * again. A prewrite lock, another transaction's lock, and one that a later request raised above `forUpdateTs` stay.
 * @param row no history needed.
 * @returns Errors: none.
 * @see TiKV `commands/pessimistic_rollback.rs`.
 */
export function pessimisticRollback(row: RowView, startTs: Timestamp, forUpdateTs: Timestamp): Outcome<void> {
  const { key, lock } = row
  const isMeant = lock?.type === 'pessimistic' && lock.startTs === startTs && lock.forUpdateTs <= forUpdateTs
  return done(undefined, isMeant ? [{ type: 'delete-lock', key }] : [])
}
