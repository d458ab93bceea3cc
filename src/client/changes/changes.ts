import type { StreamRequest } from '../../changes/rules/changes-api.js'
import type { FeedPosition } from '../../changes/rules/feed-position.js'
import type { As } from '../bytes.js'
import type { DbBackend } from '../db-backend.js'
import { withDeadline } from '../deadline.js'
import { type ChangedTxn, changedKeyOf } from './changed-txn.js'
import { type ChangesOptions, originOf, selectionOf } from './changes-options.js'
import { FeedCursor, type GivenTxn } from './feed-cursor.js'
import { reconnecting } from './reconnecting.js'

export type ChangesBackend = Pick<DbBackend, 'changes' | 'during' | 'isAway' | 'readTs'>

export async function* changesOf<A extends As, K extends boolean, O extends boolean>(
  backend: ChangesBackend,
  options: ChangesOptions<A, K, O>,
  signal: AbortSignal,
  timeoutMs?: number,
): AsyncGenerator<ChangedTxn<A, K, O>, void, undefined> {
  const { as = 'text' as A, consumer, keysOnly, oldValues, heartbeatMs, onResolved, onError } = options
  const origin = originOf(options)
  // Asked for at once, because "now" would be later after a connection that broke before its first event.
  const now = origin === 'now' ? await positionNow(backend, signal, timeoutMs) : undefined
  if (signal.aborted) return
  const cursor = new FeedCursor(typeof origin === 'object' ? origin : now, origin === 'snapshot')
  const request = { ...selectionOf(options), consumer, keysOnly, oldValues, heartbeatMs, signal }
  const open = () => backend.changes.stream({ ...request, ...cursor.reopen() } satisfies StreamRequest)
  for await (const events of reconnecting(backend, open, { signal, onError }))
    for (const given of cursor.take(events)) {
      if ('txn' in given) yield changedTxnOf(given.txn, as)
      else await onResolved?.(given.resolvedTs)
      if (signal.aborted) return
    }
}

/** @returns undefined when the signal has ended the loop. */
async function positionNow(
  backend: ChangesBackend,
  signal: AbortSignal,
  timeoutMs: number | undefined,
): Promise<FeedPosition | undefined> {
  try {
    const ts = withDeadline(timeoutMs, signal, (timed) => backend.during(async () => backend.readTs(timed)))
    return { ts: await ts }
  } catch (error) {
    if (signal.aborted) return undefined
    throw error
  }
}

function changedTxnOf<A extends As, K extends boolean, O extends boolean>(
  { changes, ...txn }: GivenTxn,
  as: A,
): ChangedTxn<A, K, O> {
  return { ...txn, changes: changes.map((change) => changedKeyOf<A, K, O>(change, change.commitTs, as)) }
}
