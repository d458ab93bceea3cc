import { get } from '../../percolator/actions/get.js'
import { decodeKey, decodeKeyTs } from '../../percolator/codec/key.js'
import { decodeWrite } from '../../percolator/codec/write.js'
import { endsHistory, type HistoryDepth, sameKey } from '../../percolator/row.js'
import type { Timestamp } from '../../percolator/timestamp.js'
import type { WriteRecord } from '../../percolator/write.js'
import { type EngineReader, pagesOf } from './engine.js'
import { CF_DEFAULT, CF_NEWEST, CF_WRITE, keyRange, newestKey, valueKey, versionRange, writeKey } from './keyspace.js'
import { decodeNewest } from './newest-record.js'

/** The usual history is one record; the second tells that there are more. */
const FIRST_READ = 2
const NEXT_READ = 64
const SCAN_READ = 512
/** Iterators open at a time where keys have newer versions than the one asked for. */
const OLDER_AT_A_TIME = 64

/** Newest first, as deep as asked; see `HistoryDepth`. */
export async function readHistory(
  engine: EngineReader,
  key: Uint8Array,
  startTs: Timestamp,
  depth: HistoryDepth,
): Promise<WriteRecord[]> {
  if (depth === 'none') return []
  const writes: WriteRecord[] = []
  const iterator = engine.iterator(versionRange(CF_WRITE, key))
  try {
    for (let size = depth === 'all' ? NEXT_READ : FIRST_READ; ; size = NEXT_READ) {
      const entries = await iterator.nextv(size)
      for (const [recordKey, bytes] of entries) {
        const write = decodeWrite(bytes, decodeKeyTs(recordKey))
        writes.push(write)
        if (endsHistory(write, startTs, depth)) return writes
      }
      if (entries.length < size) return writes
    }
  } finally {
    await iterator.close()
  }
}

/** The newest Put or Delete of a key. */
export async function readNewest(engine: EngineReader, key: Uint8Array): Promise<WriteRecord | undefined> {
  const bytes = await engine.get(newestKey(key))
  return bytes && decodeNewest(bytes)
}

/** The Put or Delete of each key that a read at `ts` sees: most often the newest. */
export async function readVersions(
  engine: EngineReader,
  keys: readonly Uint8Array[],
  ts: Timestamp,
): Promise<(WriteRecord | undefined)[]> {
  const newest = await engine.getMany(keys.map(newestKey))
  return withOlder(
    engine,
    newest.map((bytes, i) => ({ key: keys[i] as Uint8Array, write: bytes && decodeNewest(bytes) })),
    ts,
  )
}

/** The Put or Delete that a read at `ts` sees, where the newest is above it. */
export async function readOlderVersion(
  engine: EngineReader,
  key: Uint8Array,
  ts: Timestamp,
): Promise<WriteRecord | undefined> {
  const iterator = engine.iterator({ gte: writeKey(key, ts), lt: versionRange(CF_WRITE, key).lt })
  try {
    for (let size = 1; ; size = NEXT_READ) {
      const entries = await iterator.nextv(size)
      for (const [recordKey, bytes] of entries) {
        const write = decodeWrite(bytes, decodeKeyTs(recordKey))
        if (get([write], ts) !== 'older') return write
      }
      if (entries.length < size) return undefined
    }
  } finally {
    await iterator.close()
  }
}

/** Puts in place of each newest record that is above `ts` the version below it. */
async function withOlder(
  engine: EngineReader,
  newest: readonly { readonly key: Uint8Array; readonly write: WriteRecord | undefined }[],
  ts: Timestamp,
): Promise<(WriteRecord | undefined)[]> {
  const writes = newest.map(({ write }) => write)
  const above = newest.flatMap(({ write }, i) => (write !== undefined && write.commitTs > ts ? [i] : []))
  for (let from = 0; from < above.length; from += OLDER_AT_A_TIME) {
    const chunk = above.slice(from, from + OLDER_AT_A_TIME)
    const older = await Promise.all(
      chunk.map((i) => readOlderVersion(engine, (newest[i] as { key: Uint8Array }).key, ts)),
    )
    chunk.forEach((i, n) => {
      writes[i] = older[n]
    })
  }
  return writes
}

export interface ScannedVersion {
  readonly key: Buffer
  readonly write: WriteRecord
}

/** The puts that a read at `ts` sees in a range, in scan order, at most `limit`. */
export async function scanVersions(
  engine: EngineReader,
  range: { readonly start?: Uint8Array | undefined; readonly end?: Uint8Array | undefined },
  ts: Timestamp,
  limit: number,
  reverse: boolean,
): Promise<ScannedVersion[]> {
  const iterator = engine.iterator({ ...keyRange(CF_NEWEST, range.start, range.end), reverse })
  const found: ScannedVersion[] = []
  try {
    // Deleted keys fill no page: the more of them, the longer the next one.
    for (let size = Math.min(SCAN_READ, limit); ; size = Math.min(SCAN_READ, 2 * size)) {
      const entries = await iterator.nextv(size)
      const newest = entries.map(([recordKey, bytes]) => ({ key: decodeKey(recordKey), write: decodeNewest(bytes) }))
      const writes = newest.some(({ write }) => write.commitTs > ts) ? await withOlder(engine, newest, ts) : undefined
      for (let i = 0; i < newest.length && found.length < limit; i++) {
        const { key, write: newestWrite } = newest[i] as (typeof newest)[number]
        const write = writes === undefined ? newestWrite : writes[i]
        if (write?.type === 'put') found.push({ key, write })
      }
      if (entries.length < size || found.length >= limit) return found
    }
  } finally {
    await iterator.close()
  }
}

/** Any record in a range for which `isWanted` holds. */
export async function findVersion(
  engine: EngineReader,
  range: { readonly start?: Uint8Array | undefined; readonly end?: Uint8Array | undefined },
  isWanted: (write: WriteRecord) => boolean,
): Promise<ScannedVersion | undefined> {
  for await (const page of pagesOf(engine, keyRange(CF_WRITE, range.start, range.end), SCAN_READ)) {
    for (const [recordKey, bytes] of page) {
      const write = decodeWrite(bytes, decodeKeyTs(recordKey))
      if (isWanted(write)) return { key: decodeKey(recordKey), write }
    }
  }
  return undefined
}

/**
 * The values of puts, in their order; an entry is undefined when a long value is not there: collected since, if the
 * engine moved on, or lost.
 */
export async function readValues(
  engine: EngineReader,
  versions: readonly { readonly key: Uint8Array; readonly write: WriteRecord }[],
): Promise<(Uint8Array | undefined)[]> {
  const values = versions.map(({ write }): Uint8Array | undefined => write.shortValue)
  const long = versions.flatMap(({ write }, index) => (write.shortValue === undefined ? [index] : []))
  if (long.length === 0) return values
  const keys = long.map((index) => {
    const version = versions[index] as ScannedVersion
    return valueKey(version.key, version.write.startTs)
  })
  const read = await engine.getMany(keys)
  long.forEach((index, i) => {
    values[index] = read[i]
  })
  return values
}

/** Every value of one key in CF_DEFAULT, newest first. */
export async function readAllValues(
  engine: EngineReader,
  key: Uint8Array,
): Promise<{ startTs: Timestamp; value: Uint8Array }[]> {
  const values: { startTs: Timestamp; value: Uint8Array }[] = []
  for await (const page of pagesOf(engine, versionRange(CF_DEFAULT, key), NEXT_READ))
    for (const [valueAt, value] of page) values.push({ startTs: decodeKeyTs(valueAt), value })
  return values
}

/** The keys that have at least one record in a column family, ascending, in chunks of at most `chunk`. */
export async function* userKeys(
  engine: EngineReader,
  cf: typeof CF_DEFAULT | typeof CF_WRITE,
  range: { readonly start?: Uint8Array | undefined; readonly end?: Uint8Array | undefined },
  chunk: number,
): AsyncGenerator<Buffer[]> {
  const bounds = { ...keyRange(cf, range.start, range.end), values: false }
  let keys: Buffer[] = []
  let last: Buffer | undefined
  for await (const page of pagesOf(engine, bounds, SCAN_READ)) {
    for (const [recordKey] of page) {
      const key = decodeKey(recordKey)
      if (last !== undefined && sameKey(last, key)) continue
      last = key
      keys.push(key)
      if (keys.length < chunk) continue
      yield keys
      keys = []
    }
  }
  if (keys.length > 0) yield keys
}
