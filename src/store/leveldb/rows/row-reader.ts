import { pairCost } from '../../../bytes/answer-size.js'
import { keyText } from '../../../bytes/key-text.js'
import { decodeKey, decodeKeyTs } from '../../../percolator/codec/key.js'
import { TS_BYTES } from '../../../percolator/codec/timestamp.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import { endsHistory, type HistoryDepth, sameKey } from '../../../percolator/row.js'
import { isData, type WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { type EngineRange, type EngineReader, pagesOf } from '../engine/engine.js'
import { CF_DEFAULT, CF_WRITE, keyRange, newestKey, valueKey, versionRange } from '../records/keyspace.js'
import { decodeNewest } from '../records/newest-record.js'
import { readOlderVersions, walkOlderVersions } from './older-versions.js'

/** Most histories have one record; a read of two shows that there are no more. */
const FIRST_READ = 2
const NEXT_READ = 64
const SCAN_READ = 512
/** A walk pays from this many keys per page that need an older version. */
const WALK_MIN = 16

export async function readHistory(
  engine: EngineReader,
  key: Uint8Array,
  startTs: Timestamp,
  depth: HistoryDepth,
  onWrite?: (write: WriteRecord) => void,
): Promise<WriteRecord[]> {
  if (depth === 'none') return []
  const writes: WriteRecord[] = []
  const first = depth === 'all' ? NEXT_READ : FIRST_READ
  for await (const page of pagesOf(engine, versionRange(CF_WRITE, key), NEXT_READ, first)) {
    for (const [recordKey, bytes] of page) {
      const write = decodeWrite(bytes, decodeKeyTs(recordKey))
      onWrite?.(write)
      writes.push(write)
      if (endsHistory(write, startTs, depth)) return writes
    }
  }
  return writes
}

/** @returns per key the Put or Delete that a read at `ts` sees. */
export async function readVersions(
  engine: EngineReader,
  keys: readonly Uint8Array[],
  ts: Timestamp,
): Promise<(WriteRecord | undefined)[]> {
  const newest = (await engine.getMany(keys.map(newestKey))).map((bytes) => bytes && decodeNewest(bytes))
  const above = keys.filter((_, i) => isAbove(newest[i], ts))
  if (above.length === 0) return newest
  const older = await readOlderVersions(engine, above, ts)
  return newest.map((write, i) => (isAbove(write, ts) ? older.get(keyText(keys[i] as Uint8Array)) : write))
}

function isAbove(write: WriteRecord | undefined, ts: Timestamp): boolean {
  return write !== undefined && write.commitTs > ts
}

export interface ScannedVersion {
  readonly key: Buffer
  readonly write: WriteRecord
}

/**
 * @param range of CF_NEWEST.
 * @param isSeen returns whether the read finds a version.
 * @param grow called per page with the cost of its versions in memory; ends the scan by throwing.
 * @returns the versions that a read at `ts` sees in the range, in scan order, at most `limit`.
 */
export async function scanVersions(
  engine: EngineReader,
  range: EngineRange,
  ts: Timestamp,
  limit: number,
  reverse: boolean,
  isSeen: (write: WriteRecord) => boolean,
  grow: (bytes: number) => void,
): Promise<ScannedVersion[]> {
  const iterator = engine.iterator({ ...range, reverse })
  const found: ScannedVersion[] = []
  try {
    // Deleted keys yield no version, so pages double until the limit is reached.
    for (let size = Math.min(SCAN_READ, limit); ; size = Math.min(SCAN_READ, 2 * size)) {
      const entries = await iterator.nextv(size)
      const newest = entries.map(([recordKey, bytes]) => ({ key: decodeKey(recordKey), write: decodeNewest(bytes) }))
      const above = newest.flatMap(({ key, write }) => (isAbove(write, ts) ? [key] : []))
      const isDense = above.length >= WALK_MIN && 4 * above.length > newest.length
      const older = isDense
        ? await walkOlderVersions(engine, reverse ? above.toReversed() : above, ts)
        : await readOlderVersions(engine, above, ts)
      let cost = 0
      for (const { key, write: newestWrite } of newest) {
        if (found.length >= limit) break
        const write = isAbove(newestWrite, ts) ? older.get(keyText(key)) : newestWrite
        if (write === undefined || !isSeen(write)) continue
        found.push({ key, write })
        cost += pairCost({ key, value: write.shortValue })
      }
      grow(cost)
      if (entries.length < size || found.length >= limit) return found
    }
  } finally {
    await iterator.close()
  }
}

/** @param isWanted `isSeen` says whether the record is the Put or Delete that a read at `ts` sees. */
export async function findVersion(
  engine: EngineReader,
  range: { readonly start?: Uint8Array | undefined; readonly end?: Uint8Array | undefined },
  ts: Timestamp,
  isWanted: (write: WriteRecord, isSeen: boolean) => boolean,
): Promise<ScannedVersion | undefined> {
  let seen: Buffer | undefined
  for await (const page of pagesOf(engine, keyRange(CF_WRITE, range.start, range.end), SCAN_READ)) {
    for (const [recordKey, bytes] of page) {
      const write = decodeWrite(bytes, decodeKeyTs(recordKey))
      const isOld = write.commitTs <= ts && isData(write)
      const isSeen = isOld && (seen === undefined || !isOfSameKey(seen, recordKey))
      if (isOld) seen = recordKey
      if (isWanted(write, isSeen)) return { key: decodeKey(recordKey), write }
    }
  }
  return undefined
}

/** True when two records of one column family differ only in their timestamps. */
function isOfSameKey(a: Buffer, b: Buffer): boolean {
  const length = a.length - TS_BYTES
  return a.length === b.length && a.compare(b, 0, length, 0, length) === 0
}

/**
 * @returns `values[i]` is the value of `versions[i]`; undefined when a long value is missing: lost, or, if `engine` is not a
 *   snapshot, collected.
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

export async function readAllValues(
  engine: EngineReader,
  key: Uint8Array,
  onValue: (value: Uint8Array) => void = () => {},
): Promise<{ startTs: Timestamp; value: Uint8Array }[]> {
  const values: { startTs: Timestamp; value: Uint8Array }[] = []
  for await (const page of pagesOf(engine, versionRange(CF_DEFAULT, key), NEXT_READ))
    for (const [valueAt, value] of page) {
      onValue(value)
      values.push({ startTs: decodeKeyTs(valueAt), value })
    }
  return values
}

/** Limits of a step. A single key may have more records. */
const STEP_KEYS_MAX = 256
const STEP_RECORDS_MAX = 2000

/** Yields the keys with a record in a column family, ascending, in steps small enough to process at once. */
export async function* userKeys(
  engine: EngineReader,
  cf: typeof CF_DEFAULT | typeof CF_WRITE,
  range: { readonly start?: Uint8Array | undefined; readonly end?: Uint8Array | undefined },
): AsyncGenerator<Buffer[]> {
  const bounds = { ...keyRange(cf, range.start, range.end), values: false }
  let keys: Buffer[] = []
  let records = 0
  let last: Buffer | undefined
  for await (const page of pagesOf(engine, bounds, SCAN_READ)) {
    for (const [recordKey] of page) {
      records++
      const key = decodeKey(recordKey)
      if (last !== undefined && sameKey(last, key)) continue
      if (keys.length >= STEP_KEYS_MAX || records > STEP_RECORDS_MAX) {
        if (keys.length > 0) yield keys
        keys = []
        records = 1
      }
      last = key
      keys.push(key)
    }
  }
  if (keys.length > 0) yield keys
}
