/**
 * Keys of a one-shot transaction, as `keyText`, and system records, as `latchOf`. Each text must appear once in the two lists
 * together.
 */
export interface LatchSet {
  readonly written: readonly string[]
  readonly read: readonly string[]
  /** Only one body with `isAlone` runs at a time. For serializable transactions that read ranges. */
  readonly isAlone: boolean
}

/** Not a key: keys have no character above U+00FF. */
const ALONE_LATCH = '\u0100'

/** The latches that a claim takes exclusively; those of `read` are shared. */
export function exclusiveLatches({ written, isAlone }: LatchSet): readonly string[] {
  return isAlone ? [...written, ALONE_LATCH] : written
}
