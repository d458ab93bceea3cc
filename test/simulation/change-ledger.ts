import { keyText } from '../../src/bytes/key-text.js'
import type { Change, RangeChange } from '../../src/percolator/change.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { Violations } from './violations.js'

/** A change as a feed has to tell of it. Keys of the text that `keyText` makes. */
export interface FedChange {
  readonly type: Change['type']
  readonly key: string
  readonly commitTs: Timestamp
  readonly startTs: Timestamp
  /** Of a put. */
  readonly value: string | undefined
  /** Of a delete_range. */
  readonly end: string | undefined
}

/** `[start, end)`; undefined: every key. */
export type FedRange = { readonly start: string; readonly end: string } | undefined

/** Order of a feed: see `compareChanges`. */
export function compareFed(a: FedChange, b: FedChange): number {
  const byTs = a.commitTs - b.commitTs || a.startTs - b.startTs || rankOf(a) - rankOf(b)
  return byTs || (a.key < b.key ? -1 : a.key > b.key ? 1 : 0)
}

/** A delete_range may have the timestamp of expiries. */
function rankOf({ type }: Pick<FedChange, 'type'>): 0 | 1 {
  return type === 'expire' ? 1 : 0
}

export function printFed({ type, key, commitTs, startTs, value }: FedChange): string {
  return `the ${type} of ${key}${value === undefined ? '' : `=${value.slice(0, 20)}`} at ${commitTs} by ${startTs}`
}

/** What a feed tells of a change; undefined where it is not in the range. */
export function fed(change: FedChange, range: FedRange): FedChange | undefined {
  if (range === undefined) return change
  if (change.end === undefined) return change.key >= range.start && change.key < range.end ? change : undefined
  const [, key = ''] = [change.key, range.start].sort()
  const [end = ''] = [change.end, range.end].sort()
  return key < end ? { ...change, key, end } : undefined
}

/** Each removal of ranges, and the highest resolved_ts that anybody was told. */
export class ChangeLedger {
  removals: RangeChange[] = []
  /** Since the last crash that took what readers had seen. */
  #published: Timestamp = 0
  /** Of several servers: what commits at or below it need not be told. */
  since: Timestamp = 0
  readonly #violations: Violations

  constructor(violations: Violations) {
    this.#violations = violations
  }

  /** Changes that came to be seen: none is at or below a resolved_ts that somebody knows. */
  committed(what: string, commitTs: Timestamp): void {
    if (commitTs > this.since && commitTs <= this.#published)
      this.#violations.add('resolved', `${what} commits at ${commitTs}; resolved_ts was ${this.#published}`)
  }

  removed(removal: RangeChange): void {
    if (this.removals.some(({ commitTs }) => commitTs === removal.commitTs)) return
    this.committed(`the delete_range from ${keyText(removal.key)}`, removal.commitTs)
    this.removals.push(removal)
  }

  lost(removal: RangeChange): void {
    this.removals = this.removals.filter(({ commitTs }) => commitTs !== removal.commitTs)
  }

  /** The server has taken resolved_ts. */
  resolved(ts: Timestamp): void {
    if (ts < this.#published) this.#violations.add('resolved', `resolved_ts falls to ${ts}; it was ${this.#published}`)
    this.published(ts)
  }

  /** Somebody was told that everything at or below it is known. */
  published(ts: Timestamp): void {
    this.#published = Math.max(this.#published, ts)
  }

  forget(): void {
    this.#published = 0
  }

  /** Whether a removal above `commitTs`, and at or below `upTo`, took the key. */
  isRemoved(key: string, commitTs: Timestamp, upTo = Number.POSITIVE_INFINITY): boolean {
    return this.removals.some(
      (removal) =>
        removal.commitTs > commitTs &&
        removal.commitTs <= upTo &&
        keyText(removal.key) <= key &&
        key < keyText(removal.end),
    )
  }
}
