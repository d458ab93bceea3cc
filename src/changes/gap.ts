import { type KeyRange, mergedRanges } from '../bytes/key-range.js'
import { keyText } from '../bytes/key-text.js'
import type { Change } from '../percolator/change.js'
import { RangeIndex } from '../percolator/range-index.js'
import type { ChangeLog } from '../store/change-log.js'
import type { Pace } from '../store/pace.js'
import type { Timestamp } from '../timestamp.js'
import { ChangeFilter } from './rules/change-filter.js'

/** The time above a position in which a range is known not to have changed. */
export class Gap {
  readonly range: KeyRange
  readonly #filter: ChangeFilter
  /** The range has no change above the position up to here. */
  end: Timestamp
  /** The first change above the position; undefined while none is known. */
  next: Timestamp | undefined

  constructor(range: KeyRange, position: Timestamp) {
    this.range = range
    this.#filter = new ChangeFilter([range])
    this.end = position
  }

  /** Call when the position is at or above `ts`. */
  passed(ts: Timestamp): void {
    this.end = Math.max(this.end, ts)
    if (this.next !== undefined && this.next <= ts) this.next = undefined
  }

  meets(change: Change): void {
    if (this.next !== undefined || change.commitTs <= this.end || !this.#filter.has(change)) return
    this.next = change.commitTs
    this.end = change.commitTs - 1
  }
}

/**
 * Widens gaps up to `upTo` in one pass through the log, from where the last one ended.
 * @param upTo at or below resolved_ts.
 * @param pace ends it early.
 * @throws KvError as `ChangeLog.read`
 */
export async function widen(gaps: readonly Gap[], log: ChangeLog, upTo: Timestamp, pace: Pace): Promise<void> {
  const isOpen = ({ next, end }: Gap): boolean => next === undefined && end < upTo
  for (let open = gaps.filter(isOpen); open.length > 0 && !pace.signal?.aborted; ) {
    const since = open.reduce((least, { end }) => Math.min(least, end), upTo)
    const index = new RangeIndex<Gap>()
    for (const gap of open) index.add(gap.range, gap)
    const ranges = mergedRanges(open.map(({ range }) => range))
    let begin = performance.now()
    for await (const page of log.read({ since, upTo, ranges, keysOnly: true, signal: pace.signal })) {
      for (const change of page.changes)
        for (const gap of change.type === 'delete_range' ? open : index.at(keyText(change.key))) gap.meets(change)
      for (const gap of open) if (gap.next === undefined) gap.passed(page.upTo)
      open = open.filter((gap) => {
        const stays = isOpen(gap)
        // A closed gap has not met all changes of this page, and `passed` may clear its next one during a pause.
        if (!stays) index.remove(gap.range, gap)
        return stays
      })
      // The other gaps end further on: nothing in between has to be read.
      if (open.every(({ end }) => end > page.upTo) || pace.signal?.aborted) break
      await pace.pause(performance.now() - begin)
      begin = performance.now()
    }
  }
}
