import { userKey } from './internal-key.js'
import { ByteReader } from './varint.js'

export interface LiveTable {
  readonly size: number
  readonly smallest: Buffer
  readonly largest: Buffer
}

export interface LiveFiles {
  readonly comparator?: string | undefined
  readonly tables: ReadonlyMap<number, LiveTable>
  readonly removed: ReadonlySet<number>
  /** Logs from this number on are live, besides `previousLog`; 0: all logs. */
  readonly log: number
  readonly previousLog: number
  /** Sequence number of an operation that was in a table or a log when this was written. */
  readonly lastSequence: number
}

/** @throws RangeError when a record is malformed, or a field that LevelDB needs is missing. */
export function liveFiles(manifestRecords: readonly Buffer[]): LiveFiles {
  const tables = new Map<number, LiveTable>()
  const removed = new Set<number>()
  let comparator: string | undefined
  let log: number | undefined
  let hasNextFile = false
  let lastSequence: number | undefined
  let previousLog = 0
  for (const record of manifestRecords) {
    const added = new Map<number, LiveTable>()
    for (const reader = new ByteReader(record); !reader.isDone; ) {
      const tag = reader.varint()
      switch (tag) {
        case 1: // Comparator.
          comparator = reader.slice().toString()
          break
        case 2:
          log = reader.varint()
          break
        case 3: // Next file number.
          reader.varint()
          hasNextFile = true
          break
        case 4:
          lastSequence = reader.varint()
          break
        case 5: // Start of a level's next compaction.
          reader.varint()
          reader.slice()
          break
        case 6: {
          reader.varint()
          const table = reader.varint()
          tables.delete(table)
          removed.add(table)
          break
        }
        case 7: {
          reader.varint()
          const table = reader.varint()
          const size = reader.varint()
          added.set(table, { size, smallest: userKey(reader.slice()), largest: userKey(reader.slice()) })
          break
        }
        case 9:
          previousLog = reader.varint()
          break
        default:
          throw new RangeError(`a record of the MANIFEST has the unknown tag ${tag}`)
      }
    }
    // A table that only moves to another level is removed and added by one record.
    for (const [table, live] of added) {
      tables.set(table, live)
      removed.delete(table)
    }
  }
  if (log === undefined || !hasNextFile || lastSequence === undefined)
    throw new RangeError('its first records are not all there')
  return { comparator, tables, removed, log, previousLog, lastSequence }
}
