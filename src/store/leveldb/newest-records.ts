import { decodeKey, decodeKeyTs } from '../../percolator/codec/key.js'
import { decodeWrite } from '../../percolator/codec/write.js'
import { sameKey } from '../../percolator/row.js'
import { isData } from '../../percolator/write.js'
import { type Engine, type EngineOp, pagesOf } from './engine.js'
import { CF_WRITE, keyRange, newestKey } from './keyspace.js'
import { encodeNewest } from './newest-record.js'

const RECORDS_AT_A_TIME = 1000

/** Fills CF_NEWEST from CF_WRITE, for a database of format 1, which had none. Repeatable: a crash leaves it half done. */
export async function buildNewest(engine: Engine): Promise<void> {
  let done: Buffer | undefined
  for await (const page of pagesOf(engine, keyRange(CF_WRITE), RECORDS_AT_A_TIME)) {
    const ops: EngineOp[] = []
    for (const [recordKey, value] of page) {
      const key = decodeKey(recordKey)
      const commitTs = decodeKeyTs(recordKey)
      if ((done !== undefined && sameKey(done, key)) || !isData(decodeWrite(value, commitTs))) continue
      done = key
      ops.push({ type: 'put', key: newestKey(key), value: encodeNewest(commitTs, value) })
    }
    await engine.write(ops, false)
  }
}
