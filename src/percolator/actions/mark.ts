import type { Timestamp } from '../../timestamp.js'
import type { Entry, Failure, MarkKind } from '../cell.js'
import type { Observer } from '../observer.js'

/** A change of the observed row, or a notification. */
export interface Mark {
  readonly changeTs: Timestamp
  readonly kind: MarkKind
  readonly depth: number
}

/** Either the entry that stands from now on, or the failure of a cell that is parked at once. */
export type Marked = { readonly entry: Entry } | { readonly parked: Failure }

/**
 * Decides the entry of a cell after a mark.
 * @param present the newest change that is not covered: the entry that stands, or the change with which the cell is parked. May be left out when the mark is newer than every entry can be.
 */
export function markCell(observer: Observer, mark: Mark, present?: Entry): Marked {
  const { changeTs, kind, depth } = mark
  // A transaction may commit below a notification that came before it; both must be covered.
  const isNewer = present === undefined || changeTs >= present.changeTs
  const entry = isNewer ? { changeTs, kind, depth } : present
  if (!isNewer || observer.maxDepth === 0 || depth <= observer.maxDepth) return { entry }
  const error = `the depth ${depth} of the notification is above max_depth ${observer.maxDepth}`
  return { parked: { attempts: 0, notBeforeMs: 0, error, parkedTs: changeTs, changeTs, kind, depth } }
}
