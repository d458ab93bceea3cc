import type { MergedVersion } from '../coordinator/transaction.js'
import { KvError } from '../errors/kv-error.js'
import { printKey } from '../errors/print-key.js'
import type { FailedCheck } from '../errors/registry.js'
import { type FailedLeaseCheck, leaseLost } from '../leases/rules/lease.js'
import type { Timestamp } from '../timestamp.js'

/** A condition on one key's version at the transaction's start. Every given field must hold. */
export interface Check {
  /** Index of the check in the client's request. Default: its index in the list. */
  readonly index?: number | undefined
  readonly key: Uint8Array
  readonly exists?: boolean | undefined
  readonly value?: Uint8Array | undefined
  /** The version must be this one, or one of these; 0 means that the key is absent. */
  readonly commitTs?: Timestamp | readonly Timestamp[] | undefined
  /** The version must be none of these; 0 means that the key is absent. */
  readonly commitTsNot?: readonly Timestamp[] | undefined
}

type FailedKeyCheck = Extract<FailedCheck, { readonly key: Uint8Array }>

/**
 * @param found returns the version of a key, without `commitTs` if the transaction itself wrote it.
 * @param lostLeases returns the leases lost at this moment: see `checksFailed`.
 * @throws KvError `precondition_failed`.
 */
export function requireChecks(
  checks: readonly Check[],
  found: (key: Uint8Array) => MergedVersion | undefined,
  lostLeases: () => readonly FailedLeaseCheck[] = () => [],
): void {
  const failed = failedChecks(checks, found)
  if (failed.length > 0) throw checksFailed(failed, lostLeases())
}

export function failedChecks(
  checks: readonly Check[],
  found: (key: Uint8Array) => MergedVersion | undefined,
): readonly FailedKeyCheck[] {
  const failed: FailedKeyCheck[] = []
  for (const [place, check] of checks.entries()) {
    const pair = found(check.key)
    if (holds(check, pair)) continue
    const { index = place, key } = check
    failed.push({ index, key, exists: pair !== undefined, commitTs: pair?.commitTs ?? 0 })
  }
  return failed
}

/**
 * @param failed at least one.
 * @param lost leases that are lost too; the error lists them with the failed checks.
 */
export function checksFailed(
  failed: readonly FailedKeyCheck[],
  lost: readonly FailedLeaseCheck[],
): KvError<'precondition_failed'> {
  const first = failed[0] as FailedKeyCheck
  const all: FailedCheck[] = [...failed, ...lost].sort((a, b) => a.index - b.index)
  if (all[0] !== first) return leaseLost(lost, all)
  const detail = `check ${first.index} on key ${printKey(first.key)} does not hold`
  const { key, commitTs, index } = first
  return new KvError('precondition_failed', detail, { key, commitTs, index, failedChecks: all })
}

function holds(check: Check, found: MergedVersion | undefined): boolean {
  if (check.exists !== undefined && check.exists !== (found !== undefined)) return false
  if (check.value !== undefined && (found?.value === undefined || Buffer.compare(check.value, found.value) !== 0))
    return false
  const commitTs = found?.commitTs ?? 0
  if (check.commitTsNot?.includes(commitTs)) return false
  if (check.commitTs === undefined) return true
  return typeof check.commitTs === 'number' ? check.commitTs === commitTs : check.commitTs.includes(commitTs)
}
