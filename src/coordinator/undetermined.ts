import type { Timestamp } from '../timestamp.js'

/**
 * Nobody knows whether the transaction committed: its last answer was lost, and asking what became of it failed as well.
 * It is one or the other for good; `commit` may be called again to learn which.
 */
export class Undetermined extends Error {
  override readonly name = 'Undetermined'
  readonly code = 'undetermined'
  constructor(
    readonly startTs: Timestamp,
    cause: unknown,
  ) {
    super(`it is not known whether the transaction at ${startTs} committed`, { cause })
  }
}
