import type { Timestamp } from '../timestamp.js'

export interface VersionEnd {
  /** The version is absent from this timestamp on. 0 or absent: it does not expire. */
  readonly expireTs?: Timestamp | undefined
  /** The end of the lease with this fence deletes the key. 0 or absent: the version is attached to none. */
  readonly leaseFence?: Timestamp | undefined
}

export function withEnd<T extends object>(version: T, { expireTs = 0, leaseFence = 0 }: VersionEnd): T & VersionEnd {
  if (leaseFence === 0) return expireTs === 0 ? version : { ...version, expireTs }
  return expireTs === 0 ? { ...version, leaseFence } : { ...version, expireTs, leaseFence }
}
