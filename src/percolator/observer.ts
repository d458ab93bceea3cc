import type { KeyRange } from '../bytes/key-range.js'
import type { Timestamp } from '../timestamp.js'

/** A range whose committed Puts and Deletes mark a cell per key. The paper, section 2.4. */
export interface Observer {
  /** Timestamp of its creation, so it is never used again. */
  readonly id: Timestamp
  readonly name: string
  readonly range: KeyRange
  /** A mark that is deeper is parked at once; 0: any depth. */
  readonly maxDepth: number
}
