import { encodeChanges } from '../../../changes/rules/codec/change-log.js'
import type { Change } from '../../../percolator/change.js'
import { decodeKey, decodeKeyTs } from '../../../percolator/codec/key.js'
import { packRecord } from '../../../percolator/codec/record.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import { isData } from '../../../percolator/write.js'
import { sealedEngine, sealedOp } from '../engine/checksum.js'
import { type Engine, type EngineOp, pagesOf } from '../engine/engine.js'
import { readMetaNumber } from '../engine/meta-number.js'
import { AHEAD_RANGE, logKey, META_LOG_START, META_MARK, writeKey } from '../records/keyspace.js'

const RECORDS_AT_A_TIME = 1000

/**
 * Gives a database of an older format its log of changes, which begins at the oracle's mark. Only records that clients have
 * committed ahead of the clock are above the mark. Can be repeated after a crash.
 * @param engine without seals.
 * @returns sealed operations for the batch that writes the new format.
 */
export async function beginLog(engine: Engine): Promise<EngineOp[]> {
  const sealed = sealedEngine(engine)
  const mark = await readMetaNumber(sealed, META_MARK)
  for await (const page of pagesOf(sealed, { ...AHEAD_RANGE, values: false }, RECORDS_AT_A_TIME)) {
    const records = page.map(([stored]) => {
      const key = decodeKey(stored)
      const commitTs = decodeKeyTs(stored)
      return { key, commitTs, stored: writeKey(key, commitTs) }
    })
    const values = await sealed.getMany(records.map(({ stored }) => stored))
    const ops = records.flatMap(({ key, commitTs }, i): EngineOp[] => {
      const bytes = values[i]
      const write = bytes && decodeWrite(bytes, commitTs)
      if (write === undefined || !isData(write)) return []
      const change: Change = { type: write.type === 'put' ? 'put' : 'delete', key, commitTs, startTs: write.startTs }
      return [{ type: 'put', key: logKey(change), value: encodeChanges([change]) }]
    })
    if (ops.length > 0) await sealed.write(ops, true)
  }
  return mark === 0 ? [] : [sealedOp({ type: 'put', key: META_LOG_START, value: packRecord([mark]) })]
}
