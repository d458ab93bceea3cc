import { asInteger, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import type { Timestamp } from '../../../timestamp.js'

const SAFE_POINT = 'safe point'

/** The row `00 00 safe-point`. No value in it ever falls. */
export interface SafePointRecord {
  readonly safePoint: Timestamp
  /** All locks of transactions below it are resolved, so records that no reader at or above it sees may be removed. */
  readonly cleared: Timestamp
  /** Length of the protocol's second in milliseconds, for tests. The row has it, so that all servers agree. */
  readonly secondMs: number | undefined
}

export function encodeSafePoint({ safePoint, cleared, secondMs }: SafePointRecord): Buffer {
  return packRecord(secondMs === undefined ? [safePoint, cleared] : [safePoint, cleared, secondMs])
}

export function decodeSafePoint(bytes: Uint8Array): SafePointRecord {
  const [safePoint, cleared, secondMs] = unpackRecord(bytes, SAFE_POINT, 2)
  return {
    safePoint: asInteger(safePoint, SAFE_POINT),
    cleared: asInteger(cleared, SAFE_POINT),
    secondMs: secondMs === undefined ? undefined : asInteger(secondMs, SAFE_POINT),
  }
}
