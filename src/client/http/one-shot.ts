import type { Timestamp } from '../../timestamp.js'
import type { Bytes } from '../bytes.js'
import type { RangeOptions } from '../key-range.js'
import type { TransactionOptions } from '../transaction-options.js'

/** Must hold at the snapshot of the transaction. `commitTs: 0` means absent, like `exists: false`. */
interface KeyCheck {
  readonly key: Bytes
  readonly exists?: boolean | undefined
  readonly value?: Bytes | undefined
  readonly commitTs?: Timestamp | undefined
}

/** At most one of them. */
interface OpExpiry {
  /** Milliseconds from the start_ts of the transaction. */
  readonly ttlMs?: number | undefined
  readonly expireTs?: Timestamp | undefined
}

/** This lease must be held under this fence when the transaction commits. */
export interface HeldCheck {
  readonly lease: string
  readonly fence: Timestamp
}

export type Check = KeyCheck | HeldCheck

export type Op =
  | { readonly op: 'get' | 'delete'; readonly key: Bytes }
  | ({
      readonly op: 'put' | 'insert'
      readonly key: Bytes
      readonly value: Bytes
      /** The key is deleted when this lease ends. The lease must be among the checks. */
      readonly lease?: string | undefined
    } & OpExpiry)
  /** Writes `key` followed by the commit timestamp. The result names it. */
  | ({ readonly op: 'put'; readonly key: Bytes; readonly value: Bytes; readonly versionstamp: true } & OpExpiry)
  | ({ readonly op: 'increment'; readonly key: Bytes; readonly by?: number | undefined } & OpExpiry)
  | ({ readonly op: 'min' | 'max'; readonly key: Bytes; readonly by: number } & OpExpiry)
  | ({ readonly op: 'touch'; readonly key: Bytes; readonly persist?: boolean | undefined } & OpExpiry)
  | ({
      readonly op: 'scan'
      readonly limit?: number | undefined
      readonly reverse?: boolean | undefined
      readonly keysOnly?: boolean | undefined
    } & RangeOptions)

/** A transaction in one request: nothing is written unless all checks hold. */
export interface OneShot extends Pick<TransactionOptions, 'acks' | 'positions' | 'isolation'> {
  readonly checks?: readonly Check[] | undefined
  /** Each op sees the writes of the ops before it. */
  readonly ops?: readonly Op[] | undefined
  readonly notify?: readonly { readonly observer: string; readonly keys: readonly Bytes[] }[] | undefined
  /** How often the server runs it again after a lost race. Default 10. */
  readonly maxRetries?: number | undefined
}

/**
 * The result of one op: of get `found`, `value`, `commitTs`, `expireTs`; of touch `found`; of scan `pairs`; of increment, min
 * and max the new `value`; of a put with `versionstamp` the `key`.
 */
interface OpResult {
  readonly key?: Uint8Array
  readonly found?: boolean
  readonly value?: Uint8Array
  readonly commitTs?: Timestamp
  readonly expireTs?: Timestamp
  readonly pairs?: readonly {
    readonly key: Uint8Array
    readonly value?: Uint8Array
    readonly commitTs?: Timestamp
    readonly expireTs?: Timestamp
  }[]
}

export interface OneShotAnswer {
  readonly startTs: Timestamp
  /** Absent when nothing was written. */
  readonly commitTs?: Timestamp
  readonly results: readonly OpResult[]
}

export function leasesOf({ checks }: { readonly checks?: unknown }): HeldCheck[] {
  const isLease = (check: unknown): check is HeldCheck =>
    typeof check === 'object' && check !== null && 'lease' in check
  return Array.isArray(checks) ? checks.filter(isLease) : []
}

/** Whether it may change anything, by ops or commit effects. Unknown ops count as writes. */
export function mayWrite({ ops, acks, positions, notify }: Readonly<Partial<Record<keyof OneShot, unknown>>>): boolean {
  const isRead = (op: unknown): boolean =>
    typeof op === 'object' && op !== null && 'op' in op && (op.op === 'get' || op.op === 'scan')
  return [acks, positions, notify].some(isGiven) || (Array.isArray(ops) ? !ops.every(isRead) : ops !== undefined)
}

function isGiven(effects: unknown): boolean {
  return Array.isArray(effects) ? effects.length > 0 : effects !== undefined
}
