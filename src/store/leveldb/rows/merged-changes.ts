import { compareChanges, type LoggedChange } from '../../../percolator/change.js'

export class MergedChanges {
  #changes: LoggedChange[] = []

  get size(): number {
    return this.#changes.length
  }

  /** @param changes in order. */
  add(changes: readonly LoggedChange[]): void {
    const [first] = changes
    const last = this.#changes.at(-1)
    if (first === undefined) return
    if (last === undefined || compareChanges(last, first) <= 0) for (const change of changes) this.#changes.push(change)
    else this.#changes = merge(this.#changes, changes)
  }

  /** Absent: takes all. */
  takeBefore(next?: LoggedChange): LoggedChange[] {
    const all = this.#changes
    const end = next === undefined ? all.length : all.findIndex((change) => compareChanges(change, next) >= 0)
    if (end === 0) return []
    this.#changes = end === -1 ? [] : all.slice(end)
    return end === -1 ? all : all.slice(0, end)
  }
}

function merge(a: readonly LoggedChange[], b: readonly LoggedChange[]): LoggedChange[] {
  const merged: LoggedChange[] = []
  let at = 0
  for (const change of b) {
    while (at < a.length && compareChanges(a[at] as LoggedChange, change) <= 0) merged.push(a[at++] as LoggedChange)
    merged.push(change)
  }
  while (at < a.length) merged.push(a[at++] as LoggedChange)
  return merged
}
