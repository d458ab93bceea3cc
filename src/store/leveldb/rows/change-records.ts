import { asBuffer } from '../../../bytes/key-text.js'
import { changeBytes, encodeChanges } from '../../../changes/rules/codec/change-log.js'
import { compareChanges, type LoggedChange } from '../../../percolator/change.js'
import { LOGICAL_PER_MS } from '../../../timestamp.js'
import type { EngineOp } from '../engine/engine.js'
import { logKey } from '../records/keyspace.js'

const RECORD_CHANGES_MAX = 4096
const RECORD_BYTES_MAX = 64 * 1024
/** Limit on the timestamps from a record's first change to its last. A reader begins this far below its position. */
export const RECORD_SPAN = 1000 * LOGICAL_PER_MS

export function changeRecords(changes: LoggedChange[]): EngineOp[] {
  if (changes.length > 1) changes.sort(compareChanges)
  const records: EngineOp[] = []
  for (let from = 0; from < changes.length; ) {
    const first = changes[from] as LoggedChange
    let to = from
    let bytes = 0
    for (; to < changes.length && to - from < RECORD_CHANGES_MAX; to++) {
      const change = changes[to] as LoggedChange
      bytes += changeBytes(change)
      if (to > from && (bytes > RECORD_BYTES_MAX || change.commitTs - first.commitTs > RECORD_SPAN)) break
    }
    const value = encodeChanges(to - from === changes.length ? changes : changes.slice(from, to))
    records.push({ type: 'put', key: asBuffer(logKey(first)), value })
    from = to
  }
  return records
}
