import type { Cell, Entry, Failure } from './cell.js'
import type { Observer } from './observer.js'

/** Either the entry that stands from now on, or the failure of a cell that is parked at once. */
export type Marked = { readonly entry: Entry } | { readonly parked: Failure }

/**
 * Decides the entry of a cell after a mark.
 * @param mark of a change of the observed row, or of a notification.
 * @param present the newest change that is not covered: the entry that stands, or the change with which the cell is parked. May
 *   be left out when the mark is newer than every entry can be.
 */
export function markCell(observer: Observer, mark: Entry, present?: Entry): Marked {
  // A transaction may commit below a notification that came before it; both must be covered.
  if (present !== undefined && mark.changeTs < present.changeTs) return { entry: present }
  const { depth } = mark
  if (observer.maxDepth === 0 || depth <= observer.maxDepth) return { entry: mark }
  const error = `the depth ${depth} of the notification is above max_depth ${observer.maxDepth}`
  return { parked: { attempts: 0, notBeforeMs: 0, error, parkedTs: mark.changeTs, ...mark } }
}

/** The newest change of a cell that is not covered: that of its entry, or the one with which the cell is parked. */
export function uncoveredEntry({ entry, failure }: Pick<Cell, 'entry' | 'failure'>): Entry | undefined {
  if (entry !== undefined || failure === undefined || failure.parkedTs === 0) return entry
  const { changeTs, kind, depth } = failure
  return { changeTs, kind, depth }
}
