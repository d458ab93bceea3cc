import { type Change, compareChanges } from '../../../percolator/change.js'
import type { Timestamp } from '../../../timestamp.js'

/** Changes of several records, in order. */
export class MergedChanges {
  #changes: Change[] = []

  /** @param changes in order. */
  add(changes: readonly Change[]): void {
    const [first] = changes
    const last = this.#changes.at(-1)
    if (first === undefined) return
    if (last === undefined || compareChanges(last, first) <= 0) for (const change of changes) this.#changes.push(change)
    else this.#changes = merge(this.#changes, changes)
  }

  /** Removes the changes at or below `ts`. */
  takeUpTo(ts: Timestamp): Change[] {
    let count = this.#changes.findIndex(({ commitTs }) => commitTs > ts)
    if (count === -1) count = this.#changes.length
    const taken = this.#changes.slice(0, count)
    this.#changes = this.#changes.slice(count)
    return taken
  }
}

function merge(a: readonly Change[], b: readonly Change[]): Change[] {
  const merged: Change[] = []
  let at = 0
  for (const change of b) {
    while (at < a.length && compareChanges(a[at] as Change, change) <= 0) merged.push(a[at++] as Change)
    merged.push(change)
  }
  while (at < a.length) merged.push(a[at++] as Change)
  return merged
}
