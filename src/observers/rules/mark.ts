import type { Cell, Failure, StoredNotification } from './cell.js'
import type { Observer } from './observer.js'

export type Marked = { readonly notification: StoredNotification } | { readonly parked: Failure }

/**
 * Decides the notification of a cell after a mark.
 * @param mark a change of the observed row, or a notification.
 * @param present the newest uncovered change: the present notification, or the change with which the cell is parked. May be left
 *   out when the mark is newer than every possible notification.
 */
export function markCell(observer: Observer, mark: StoredNotification, present?: StoredNotification): Marked {
  // A transaction may commit below an earlier notification; both must be covered.
  if (present !== undefined && mark.changeTs < present.changeTs) return { notification: present }
  const { depth } = mark
  if (observer.maxDepth === 0 || depth <= observer.maxDepth) return { notification: mark }
  const error = `the depth ${depth} of the notification is above max_depth ${observer.maxDepth}`
  return { parked: { attempts: 0, notBeforeMs: 0, error, parkedTs: mark.changeTs, ...mark } }
}

export function uncoveredNotification({
  notification,
  failure,
}: Pick<Cell, 'notification' | 'failure'>): StoredNotification | undefined {
  if (notification !== undefined || failure === undefined || failure.parkedTs === 0) return notification
  const { changeTs, kind, depth } = failure
  return { changeTs, kind, depth }
}
