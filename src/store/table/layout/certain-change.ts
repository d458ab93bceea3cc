import { Backoff } from '../../../coordinator/backoff.js'
import { KvError } from '../../../errors/kv-error.js'
import { TABLE_WAIT_MS_MAX } from '../../../limits.js'
import { RECORD_BYTES_MAX } from './layout.js'
import type { Expected, RowWrite, Table } from './table.js'

export interface Certainty {
  /** True when the row is as the change leaves it. Called when a later try is refused, because an earlier one may have landed. */
  readonly isDone: () => Promise<boolean>
  readonly isUnknown?: () => void
}

/**
 * Changes a row, and repeats the change while its outcome is unknown, for `TABLE_WAIT_MS_MAX`.
 * @returns false when the row is not as expected.
 * @throws KvError `storage_unavailable`: the change may be done, not done, or done later; `payload_too_large` for a record that
 *   could not be changed again: nothing is done.
 */
export async function certainChange(
  table: Pick<Table, 'engine' | 'change'>,
  key: Buffer,
  expected: Expected,
  writes: readonly RowWrite[],
  { isDone, isUnknown }: Certainty,
): Promise<boolean> {
  requireChangeable(writes)
  const backoff = new Backoff(10, 500)
  const endsAt = performance.now() + TABLE_WAIT_MS_MAX
  for (let tries = 1; ; tries++) {
    const changed = await table.change(key, expected, writes, Math.max(1, endsAt - performance.now()))
    if (changed === 'done') return true
    if (changed === 'refused') return tries > 1 && (await isDone())
    isUnknown?.()
    if (performance.now() >= endsAt)
      throw new KvError(
        'storage_unavailable',
        `${table.engine.title} does not answer: the change may or may not be done`,
        {},
      )
    await backoff.wait(endsAt - performance.now())
  }
}

function requireChangeable(writes: readonly RowWrite[]): void {
  const limit = RECORD_BYTES_MAX
  if (writes.some(({ family, value }) => family === 'o' && value !== undefined && value.length > limit))
    throw new KvError('payload_too_large', `a record of the server has over ${limit} bytes`, { limit })
}
