import { decodeKey, decodeKeyTs } from '../../../percolator/codec/key.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import { sameKey } from '../../../percolator/row.js'
import { isData } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { type Engine, type EngineOp, pagesOf } from '../engine/engine.js'
import { aheadKey, CF_NEWEST, CF_WRITE, keyRange, newestKey } from '../records/keyspace.js'
import { encodeNewest } from '../records/newest-record.js'

const RECORDS_AT_A_TIME = 1000

/**
 * Converts a database of format 1: fills CF_NEWEST from CF_WRITE, and lists records above the oracle's mark in the list of those
 * ahead. Can be repeated after a crash.
 */
export async function buildNewest(engine: Engine, mark: Timestamp): Promise<void> {
  for await (const page of pagesOf(engine, { ...keyRange(CF_NEWEST), values: false }, RECORDS_AT_A_TIME))
    await engine.write(
      page.map(([key]) => ({ type: 'del', key })),
      true,
    )
  let done: Buffer | undefined
  for await (const page of pagesOf(engine, keyRange(CF_WRITE), RECORDS_AT_A_TIME)) {
    const ops: EngineOp[] = []
    for (const [recordKey, value] of page) {
      const key = decodeKey(recordKey)
      const commitTs = decodeKeyTs(recordKey)
      if (commitTs > mark) ops.push({ type: 'put', key: aheadKey(key, commitTs), value: Buffer.alloc(0) })
      if ((done !== undefined && sameKey(done, key)) || !isData(decodeWrite(value, commitTs))) continue
      done = key
      ops.push({ type: 'put', key: newestKey(key), value: encodeNewest(commitTs, value) })
    }
    await engine.write(ops, true) // Synced, because LevelDB may begin a new log now, and later fsyncs would not cover this one.
  }
}
