import { get } from '../../percolator/actions/get.js'
import { decodeKey, decodeKeyTs } from '../../percolator/codec/key.js'
import { decodeWrite } from '../../percolator/codec/write.js'
import { endsHistory, type HistoryDepth, sameKey } from '../../percolator/row.js'
import type { Timestamp } from '../../percolator/timestamp.js'
import type { WriteRecord } from '../../percolator/write.js'
import { type EngineReader, pagesOf } from './engine.js'
import { CF_DEFAULT, CF_WRITE, keyRange, valueKey, versionRange, writeKey } from './keyspace.js'

/** The usual history is one record; the second tells that there are more. */
const FIRST_READ = 2
const NEXT_READ = 64
const SCAN_READ = 512
/** Versions of one key that a scan steps over before it seeks past the rest. */
const STEPS_BEFORE_SEEK = 16

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

/** The Put or Delete that a read at `ts` sees. */
export async function readVersion(
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
  const bounds = keyRange(CF_WRITE, range.start, range.end)
  const iterator = engine.iterator({ ...bounds, reverse })
  try {
    return await (reverse ? scanBackward : scanForward)(engine, iterator, ts, limit)
  } finally {
    await iterator.close()
  }
}

type Iterator = ReturnType<EngineReader['iterator']>
type Scan = (engine: EngineReader, iterator: Iterator, ts: Timestamp, limit: number) => Promise<ScannedVersion[]>

/** Newest first within a key: the first record that decides is the answer, the rest of the key is passed over. */
const scanForward: Scan = async (_engine, iterator, ts, limit) => {
  const found: ScannedVersion[] = []
  let prefix: Buffer | undefined // The current key, encoded, with its column family.
  let isDecided = false
  let steps = 0
  nextPage: for (;;) {
    const size = pageSize(limit - found.length)
    const entries = await iterator.nextv(size)
    for (const [recordKey, bytes] of entries) {
      const keyPart = recordKey.subarray(0, recordKey.length - 8)
      if (prefix === undefined || !keyPart.equals(prefix)) {
        prefix = keyPart
        isDecided = false
        steps = 0
      }
      if (isDecided) {
        // Entries after this one in the page are of the past: seeking drops them.
        if (++steps < STEPS_BEFORE_SEEK) continue
        iterator.seek(Buffer.concat([prefix, AFTER_VERSIONS]))
        prefix = undefined
        continue nextPage
      }
      const seen = get([decodeWrite(bytes, decodeKeyTs(recordKey))], ts)
      if (seen === 'older') continue
      isDecided = true
      if (seen === 'absent') continue
      found.push({ key: decodeKey(recordKey), write: seen })
      if (found.length >= limit) return found
    }
    if (entries.length < size) return found
  }
}

/** Enough for the keys still wanted when each has one version, within reason. */
function pageSize(wanted: number): number {
  return Math.min(SCAN_READ, Math.max(STEPS_BEFORE_SEEK, wanted + FIRST_READ))
}

const AFTER_VERSIONS = Buffer.alloc(9, 0xff)

/** Oldest first within a key, so a key is answered when the next one begins, or by a read of its own when it is long. */
const scanBackward: Scan = async (engine, iterator, ts, limit) => {
  const found: ScannedVersion[] = []
  let prefix: Buffer | undefined
  let seen: WriteRecord | undefined
  let steps = 0
  const finishKey = (): void => {
    if (prefix !== undefined && seen?.type === 'put') found.push({ key: decodeKey(prefix), write: seen })
    prefix = undefined
    seen = undefined
    steps = 0
  }
  nextPage: for (;;) {
    const size = pageSize(limit - found.length)
    const entries = await iterator.nextv(size)
    for (const [recordKey, bytes] of entries) {
      const keyPart = recordKey.subarray(0, recordKey.length - 8)
      if (prefix === undefined || !keyPart.equals(prefix)) {
        finishKey()
        if (found.length >= limit) return found
        prefix = keyPart
      }
      if (++steps > STEPS_BEFORE_SEEK) {
        const key = decodeKey(keyPart)
        seen = await readVersion(engine, key, ts)
        iterator.seek(keyPart) // Backwards: to the last record before every version of this key.
        finishKey()
        if (found.length >= limit) return found
        continue nextPage
      }
      const write = decodeWrite(bytes, decodeKeyTs(recordKey))
      if (write.commitTs <= ts && (write.type === 'put' || write.type === 'delete')) seen = write
    }
    if (entries.length < size) {
      finishKey()
      return found.slice(0, limit)
    }
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
