import { keyText } from '../../bytes/key-text.js'
import { isKvError, type KvError } from '../../errors/kv-error.js'
import { type AcquiredKey, acquirePessimisticLock } from '../../percolator/actions/acquire-pessimistic-lock.js'
import type {
  AcquirePessimisticLockAnswer,
  AcquirePessimisticLockRequest,
  Pair,
  PessimisticLockResult,
} from '../../percolator/api.js'
import { belowSafePoint } from '../../percolator/errors.js'
import type { Mutation, RowView } from '../../percolator/row.js'
import type { WriteRecord } from '../../percolator/write.js'
import type { RowAccess } from './row-access.js'

/** Decision of `acquire_pessimistic_lock` about the present rows: all keys or none. */
export type Locking =
  | { readonly kind: 'acquired'; readonly keys: readonly KeyAcquired[]; readonly mutations: readonly Mutation[] }
  /** Another transaction goes first on this key. `error` is set if it holds the lock. */
  | { readonly kind: 'busy'; readonly key: Uint8Array; readonly error: KvError<'key_locked'> | undefined }

type KeyAcquired = AcquiredKey & { readonly key: Uint8Array }

export function lockingDepthTs({ startTs, forUpdateTs }: AcquirePessimisticLockRequest): number {
  return Math.min(startTs, forUpdateTs)
}

/**
 * Adds the time waited to the TTL, which counts from `start_ts`: a client cannot know how long its request will wait. The lock
 * then lives after its grant as long as if it had been granted at once.
 * @param beganMs `performance.now()` when the request came.
 */
export function afterWait(request: AcquirePessimisticLockRequest, beganMs: number): AcquirePessimisticLockRequest {
  return { ...request, lockTtl: request.lockTtl + Math.ceil(performance.now() - beganMs) }
}

/**
 * @param isClaimed returns true for a free key that is promised to another, waiting transaction.
 * @throws KvError when the transaction can never lock one of the keys.
 */
export function lockKeys(
  access: Pick<RowAccess, 'safePoint' | 'jumpedSince' | 'clock'>,
  rows: readonly RowView[],
  request: AcquirePessimisticLockRequest,
  isClaimed: (key: Uint8Array) => boolean,
): Locking {
  const { startTs } = request
  if (startTs < access.safePoint) throw belowSafePoint(startTs, access.safePoint)
  const aged = { ...request, lockTtl: request.lockTtl + access.jumpedSince(startTs) }
  const keys: KeyAcquired[] = []
  const mutations: Mutation[] = []
  for (const row of rows) {
    if (isClaimed(row.key)) return { kind: 'busy', key: row.key, error: undefined }
    const outcome = acquirePessimisticLock(row, aged, access.clock())
    if (!outcome.ok) {
      const { error } = outcome
      if (!isKvError(error, 'key_locked')) throw error
      return { kind: 'busy', key: row.key, error }
    }
    keys.push({ key: row.key, ...outcome.value })
    mutations.push(...outcome.mutations)
  }
  return { kind: 'acquired', keys, mutations }
}

export function versionsToRead(
  keys: readonly KeyAcquired[],
  { returnValues }: AcquirePessimisticLockRequest,
): { readonly key: Uint8Array; readonly write: WriteRecord }[] {
  return keys.flatMap(({ key, version, lockedWithConflictTs }) =>
    version !== undefined && (returnValues || lockedWithConflictTs !== undefined) ? [{ key, write: version }] : [],
  )
}

export function lockingAnswer(
  keys: readonly KeyAcquired[],
  read: readonly Pair[],
  { returnValues, checkExistence }: AcquirePessimisticLockRequest,
): AcquirePessimisticLockAnswer {
  const pairs = new Map(read.map((pair) => [keyText(pair.key), pair]))
  const results = keys.map(({ key, version, lockedWithConflictTs }): PessimisticLockResult => {
    const { value, commitTs, expireTs, leaseFence } = pairs.get(keyText(key)) ?? {}
    const isTold = returnValues || checkExistence || lockedWithConflictTs !== undefined
    return {
      ...(isTold ? { found: version !== undefined } : {}),
      ...(value === undefined ? {} : { value }),
      ...(commitTs === undefined ? {} : { commitTs }),
      ...(expireTs === undefined ? {} : { expireTs }),
      ...(leaseFence === undefined ? {} : { leaseFence }),
      ...(lockedWithConflictTs === undefined ? {} : { lockedWithConflictTs }),
    }
  })
  return { results }
}
