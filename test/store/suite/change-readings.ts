import type { KeyRange } from '../../../src/bytes/key-range.js'
import type { Change, RangeChange } from '../../../src/percolator/change.js'
import type { ChangesRequest } from '../../../src/store/change-log.js'
import type { Store } from '../../../src/store/store.js'
import type { Timestamp } from '../../../src/timestamp.js'
import { text } from '../support.js'

/** A change with its bytes as text. `value` is absent where the log has none. */
export interface ReadChange {
  readonly type: Change['type']
  readonly key: string
  readonly end?: string
  readonly value?: string
  readonly commitTs: Timestamp
  readonly startTs: Timestamp
  readonly expireTs?: Timestamp
}

export function asText(change: Change): ReadChange {
  const { type, commitTs, startTs } = change
  const read = { type, key: text(change.key), commitTs, startTs }
  if (change.type === 'delete_range') return { ...read, end: text(change.end) }
  if (change.type === 'expire') return { ...read, expireTs: change.expireTs }
  const expiring = change.expireTs === undefined ? read : { ...read, expireTs: change.expireTs }
  return change.value === undefined ? expiring : { ...expiring, value: text(change.value) }
}

/** Everything that `request` reads, up to the newest resolved_ts unless it says otherwise. Checks what every page promises. */
export async function changesOf(store: Store, request: Partial<ChangesRequest> = {}): Promise<ReadChange[]> {
  const upTo = request.upTo ?? (await store.log.resolve())
  const found: ReadChange[] = []
  let passed: Timestamp = request.since ?? store.log.start
  for await (const page of store.log.read({ since: passed, ...request, upTo })) {
    for (const change of page.changes) {
      if (change.commitTs <= passed) throw new Error(`a change at ${change.commitTs} came after a page up to ${passed}`)
      if (change.commitTs > upTo) throw new Error(`a change at ${change.commitTs} is above ${upTo}`)
    }
    found.push(...page.changes.map(asText))
    if (page.upTo < passed) throw new Error(`a page is up to ${page.upTo}, after one up to ${passed}`)
    passed = page.upTo
  }
  if (passed !== upTo) throw new Error(`the last page is up to ${passed}, and not ${upTo}`)
  return found
}

/** The Puts and Deletes of the keys by their histories, in the order of a feed. */
export async function historyOf(store: Store, keys: readonly Uint8Array[]): Promise<ReadChange[]> {
  const found: ReadChange[] = []
  for (const key of keys) {
    const { writes, values } = await store.mvccGetByKey({ key })
    for (const { type, commitTs, startTs, shortValue } of writes) {
      if (type === 'delete') found.push({ type, key: text(key), commitTs, startTs })
      if (type !== 'put') continue
      const value = shortValue ?? values.find((each) => each.startTs === startTs)?.value
      if (value === undefined) throw new Error(`${text(key)} has no value at ${startTs}`)
      found.push({ type, key: text(key), value: text(value), commitTs, startTs })
    }
  }
  return found.sort(compareRead)
}

export function compareRead(a: ReadChange, b: ReadChange): number {
  return a.commitTs - b.commitTs || a.startTs - b.startTs || (a.key < b.key ? -1 : a.key > b.key ? 1 : 0)
}

export function isIn({ start, end }: KeyRange, key: string): boolean {
  return (start === undefined || text(start) <= key) && (end === undefined || key < text(end))
}

export const isRange = (change: ReadChange): boolean => change.type === ('delete_range' satisfies RangeChange['type'])
