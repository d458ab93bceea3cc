/**
 * `unix_ms * 2^11 + logical`: a positive safe integer, good until 2109. A plain `number` everywhere, so that JSON,
 * `jq` and hot paths carry it exactly and without BigInt.
 */
export type Timestamp = number

const LOGICAL_BITS = 11
export const LOGICAL_PER_MS = 2 ** LOGICAL_BITS

/** Above every timestamp that a clock can produce; as a read's `ts` it means "the latest committed version". */
export const TIMESTAMP_MAX: Timestamp = Number.MAX_SAFE_INTEGER

export function timestampFromMs(unixMs: number): Timestamp {
  return unixMs * LOGICAL_PER_MS
}

/** The Unix milliseconds in a timestamp; TTLs are counted from those of a transaction's `startTs`. */
export function physicalMs(ts: Timestamp): number {
  return Math.floor(ts / LOGICAL_PER_MS)
}
