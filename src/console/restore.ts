import type { Version } from './answers.js'
import { timeOf } from './readable-time.js'
import { shown, sizeOf, type WireBytes } from './wire-bytes.js'

/** One key that is to be as it was. */
export interface Restoration {
  readonly key: WireBytes
  /** undefined: it was absent, and is deleted. */
  readonly target: Version | undefined
  /** What it must still have when it is restored; undefined: it must be absent. */
  readonly present: Pick<Version, 'commitTs' | 'expireTs' | 'leaseFence'> | undefined
}

/** What becomes of one key. */
interface RestoredKey {
  readonly key: WireBytes
  readonly value: WireBytes | undefined
  /** About its expiry and its lease. */
  readonly notes: readonly string[]
}

export interface RestorePlan {
  readonly keys: readonly RestoredKey[]
  /** A transaction: body of `POST /v1/txn`. */
  readonly request: { readonly checks: readonly object[]; readonly ops: readonly object[] }
}

/** Bounds of one restoration: within those of a transaction, and what a page can hold. */
const RESTORED_KEYS_MAX = 10_000
const RESTORED_BYTES_MAX = 16 * 1024 * 1024
/** A transaction checks no more leases. */
const LEASES_MAX = 1000

/**
 * @param leases names of the leases that are held and that the token sees, by fence.
 * @returns a transaction that does all or nothing: it is refused if any key has changed.
 */
export function restorePlan(
  restorations: readonly Restoration[],
  leases: ReadonlyMap<number, string>,
  nowTs: number,
): RestorePlan {
  const named = new Map<number, string>()
  const checks: object[] = restorations.map(({ key, present }) => ({ key, commit_ts: present?.commitTs ?? 0 }))
  const ops: object[] = []
  const keys: RestoredKey[] = []
  for (const { key, target, present } of restorations) {
    if (target === undefined) {
      ops.push({ op: 'delete', key })
      keys.push({ key, value: undefined, notes: [] })
      continue
    }
    const { value, expireTs, leaseFence } = target
    const expires = expireTs !== undefined && expireTs > nowTs
    const name = leaseFence === undefined ? undefined : leases.get(leaseFence)
    const hasRoom = named.size < LEASES_MAX || (leaseFence !== undefined && named.has(leaseFence))
    const lease = hasRoom ? name : undefined
    if (lease !== undefined && leaseFence !== undefined) named.set(leaseFence, lease)
    ops.push({ op: 'put', key, value, ...(expires && { expire_ts: expireTs }), ...(lease !== undefined && { lease }) })
    keys.push({ key, value, notes: notesOn(target, present, expires, lease) })
  }
  for (const [fence, lease] of named) checks.push({ lease, fence })
  return { keys, request: { checks, ops } }
}

function notesOn(
  target: Version,
  present: Restoration['present'],
  expires: boolean,
  lease: string | undefined,
): string[] {
  const notes: string[] = []
  const { expireTs, leaseFence } = target
  if (expires) notes.push(`expires ${timeOf(expireTs ?? 0)}, as then`)
  else if (expireTs !== undefined) notes.push(`its expiry of then, ${timeOf(expireTs)}, has passed: it gets none`)
  else if (present?.expireTs !== undefined) notes.push('had no expiry: the present one is dropped')
  if (lease !== undefined) notes.push(`goes with the lease ${shown(lease)}, as then`)
  else if (leaseFence !== undefined) notes.push('its lease of then has ended, or is hidden from you: it gets none')
  else if (present?.leaseFence !== undefined) notes.push('had no lease: the present one no longer ends it')
  return notes
}

/** Counts what goes into one restoration. `take` throws when that is more than one transaction takes. */
export function restoredRoom(): { readonly take: (key: WireBytes, value: WireBytes | undefined) => void } {
  let keys = 0
  let bytes = 0
  return {
    take: (key, value = '') => {
      keys++
      bytes += sizeOf(key) + sizeOf(value)
      if (keys <= RESTORED_KEYS_MAX && bytes <= RESTORED_BYTES_MAX) return
      throw new Error(
        `One transaction restores up to ${RESTORED_KEYS_MAX} keys and 16 MiB here: select fewer keys, or take a longer prefix.`,
      )
    },
  }
}
