import { LOGICAL_PER_MS, type Timestamp, timestampFromMs } from '../timestamp.js'
import { DATE, type Kinds, TIMESTAMP } from './options.js'

/** The snapshot to read: at a timestamp, or at an instant of the clock. Default: now. */
export type ReadAt =
  | { readonly ts?: Timestamp | undefined; readonly at?: undefined }
  | { readonly ts?: undefined; readonly at?: Date | undefined }

export const READ_AT_KINDS: Kinds<ReadAt> = { ts: TIMESTAMP, at: DATE }

export function timestampOf({ ts, at }: ReadAt): Timestamp | undefined {
  if (ts !== undefined && at !== undefined) throw new TypeError('give ts or at, not both')
  const asked = at === undefined ? ts : timestampFromMs(at.getTime()) + LOGICAL_PER_MS - 1
  if (asked === undefined || (Number.isSafeInteger(asked) && asked > 0)) return asked
  throw new TypeError('ts must be a positive safe integer, at a date after 1970')
}
