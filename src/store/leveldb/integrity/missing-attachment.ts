import { printKey } from '../../../errors/print-key.js'
import { attachedKey } from '../../../percolator/codec/attached-key.js'
import { decodeKeyTs } from '../../../percolator/codec/key.js'
import { decodeWrite, encodeWrite } from '../../../percolator/codec/write.js'
import { hasExpired, isData, type WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { opened } from '../engine/checksum.js'
import { type EngineReader, pagesOf } from '../engine/engine.js'
import { CF_WRITE, newestKey, versionRange, writeKey } from '../records/keyspace.js'
import { encodeNewest } from '../records/newest-record.js'
import type { Finding, KeyRecords } from './check-key.js'

const NOTHING = Buffer.alloc(0)
const RECORDS_AT_A_TIME = 16

/**
 * Checks that the newest version of a key, if it is attached to a lease, has the row by which the end of the lease finds it. A
 * row without such a version is harmless.
 * @param engine without seals.
 * @param mark of the oracle. No transaction needs what has expired below it.
 */
export async function missingAttachment(
  engine: EngineReader,
  { key, writes }: Pick<KeyRecords, 'key' | 'writes'>,
  mark: Timestamp,
): Promise<Finding | undefined> {
  const newest = writes.find(isData)
  if (newest === undefined || newest.leaseFence === 0 || hasExpired(newest.expireTs, mark)) return undefined
  const { leaseFence, commitTs } = newest
  const row = attachedKey(leaseFence, key)
  const found = await newestOf(engine, row)
  if (found?.type === 'put') return undefined
  const message = `the put record of ${printKey(key)} at ${commitTs} is attached to the fence ${leaseFence}, and has no row of that`
  const ends = { expireTs: 0, leaseFence: 0, isProtected: false, hasOverlappedRollback: false }
  const at = found ?? newest // A deletion of the row no longer holds: an older version of the key counts again.
  const { startTs } = at
  const write = encodeWrite({ type: 'put', startTs, commitTs: at.commitTs, shortValue: NOTHING, ...ends })
  const ops = [
    { type: 'put', key: writeKey(row, at.commitTs), value: write },
    { type: 'put', key: newestKey(row), value: encodeNewest(at.commitTs, write) },
  ] as const
  return { kind: 'missing_attachment', key, ts: commitTs, message, isLoss: false, ops }
}

/** Damaged records have findings at their own keys. */
async function newestOf(engine: EngineReader, row: Uint8Array): Promise<WriteRecord | undefined> {
  for await (const page of pagesOf(engine, versionRange(CF_WRITE, row), RECORDS_AT_A_TIME))
    for (const [stored, sealed] of page) {
      const value = opened(stored, sealed)
      const write = value && decodeWrite(value, decodeKeyTs(stored))
      if (write !== undefined && isData(write)) return write
    }
  return undefined
}
