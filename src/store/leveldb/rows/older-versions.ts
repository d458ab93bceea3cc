import { keyText } from '../../../bytes/key-text.js'
import { decodeKeyTs } from '../../../percolator/codec/key.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import { isData, type WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { type EngineReader, pagesOf } from '../engine/engine.js'
import { CF_WRITE, versionRange, writeKey } from '../records/keyspace.js'

const ITERATORS_MAX = 64
const NEXT_READ = 64
const WALK_PAGE = 512
/** A walk ends after this many unneeded records in a row. */
const STEPS_MAX = 16

/** Reads the Put or Delete that a read at `ts` sees, for a key whose newest version is above `ts`. */
export async function readOlderVersion(
  engine: EngineReader,
  key: Uint8Array,
  ts: Timestamp,
): Promise<WriteRecord | undefined> {
  const range = { gte: writeKey(key, ts), lt: versionRange(CF_WRITE, key).lt }
  for await (const page of pagesOf(engine, range, NEXT_READ, 1)) {
    for (const [recordKey, bytes] of page) {
      const write = decodeWrite(bytes, decodeKeyTs(recordKey))
      if (isData(write)) return write
    }
  }
  return undefined
}

export async function readOlderVersions(
  engine: EngineReader,
  keys: readonly Uint8Array[],
  ts: Timestamp,
): Promise<Map<string, WriteRecord>> {
  const found = new Map<string, WriteRecord>()
  for (let from = 0; from < keys.length; from += ITERATORS_MAX) {
    const chunk = keys.slice(from, from + ITERATORS_MAX)
    const writes = await Promise.all(chunk.map((key) => readOlderVersion(engine, key, ts)))
    writes.forEach((write, i) => {
      if (write !== undefined) found.set(keyText(chunk[i] as Uint8Array), write)
    })
  }
  return found
}

/**
 * `readOlderVersions` for neighbouring keys. One iterator walks over all their records, which costs less than one iterator per
 * key when histories are short. After a long history it reads the remaining keys with one iterator each.
 * @param keys ascending.
 */
export async function walkOlderVersions(
  engine: EngineReader,
  keys: readonly Uint8Array[],
  ts: Timestamp,
): Promise<Map<string, WriteRecord>> {
  const found = new Map<string, WriteRecord>()
  const wanted = keys.map((key) => ({ key, at: writeKey(key, ts), end: versionRange(CF_WRITE, key).lt }))
  const [first, last] = [wanted[0], wanted.at(-1)]
  if (first === undefined || last === undefined) return found
  let next = 0
  let steps = 0
  for await (const page of pagesOf(engine, { gte: first.at, lt: last.end }, WALK_PAGE)) {
    for (const [recordKey, bytes] of page) {
      let current = wanted[next]
      while (current !== undefined && recordKey.compare(current.end) >= 0) current = wanted[++next]
      if (current === undefined) return found
      const write = recordKey.compare(current.at) < 0 ? undefined : decodeWrite(bytes, decodeKeyTs(recordKey))
      if (write !== undefined && isData(write)) {
        found.set(keyText(current.key), write)
        next++
        steps = 0
      } else if (++steps > STEPS_MAX) {
        for (const [text, older] of await readOlderVersions(engine, keys.slice(next), ts)) found.set(text, older)
        return found
      }
    }
  }
  return found
}
