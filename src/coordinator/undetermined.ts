import type { Timestamp } from '../timestamp.js'

/**
 * It is unknown whether the transaction committed: the last answer was lost, and resolving the primary failed as well.
 * Calling `commit` again may find out the outcome.
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
