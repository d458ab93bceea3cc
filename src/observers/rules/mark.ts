import type { Cell, Entry, Failure } from './cell.js'
import type { Observer } from './observer.js'

export type Marked = { readonly entry: Entry } | { readonly parked: Failure }

/**
 * Decides the entry of a cell after a mark.
 * @param mark a change of the observed row, or a notification.
 * @param present the newest uncovered change: the present entry, or the change with which the cell is parked. May be left out
 *   when the mark is newer than every possible entry.
 */
export function markCell(observer: Observer, mark: Entry, present?: Entry): Marked {
  // A transaction may commit below an earlier notification; both must be covered.
  if (present !== undefined && mark.changeTs < present.changeTs) return { entry: present }
  const { depth } = mark
  if (observer.maxDepth === 0 || depth <= observer.maxDepth) return { entry: mark }
  const error = `the depth ${depth} of the notification is above max_depth ${observer.maxDepth}`
  return { parked: { attempts: 0, notBeforeMs: 0, error, parkedTs: mark.changeTs, ...mark } }
}

export function uncoveredEntry({ entry, failure }: Pick<Cell, 'entry' | 'failure'>): Entry | undefined {
  if (entry !== undefined || failure === undefined || failure.parkedTs === 0) return entry
  const { changeTs, kind, depth } = failure
  return { changeTs, kind, depth }
}
