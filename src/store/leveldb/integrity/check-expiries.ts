import { printKey } from '../../../errors/print-key.js'
import { CorruptRecord, decodeKey, decodeKeyTs } from '../../../percolator/codec/key.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import { expiryTs, type WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { opened, sealedEngine } from '../engine/checksum.js'
import { type Engine, pagesOf } from '../engine/engine.js'
import { readMetaNumber } from '../engine/meta-number.js'
import { CF_WRITE, decodeExpiryKey, EXPIRY_RANGE, expiryKey, keyRange, META_SAFE_POINT } from '../records/keyspace.js'
import { recordName } from '../records/record-name.js'
import type { Finding } from './check-key.js'

const RECORDS_AT_A_TIME = 1000
const NOTHING = Buffer.alloc(0)

export interface CheckedExpiries {
  readonly records: number
  readonly bytes: number
}

/**
 * Checks that each version that expires above the safe point has its entry in CF_EXPIRY, without which no feed, watch or observer
 * learns of the expiry. Reads do not need the entries, so a lost one loses no data. An entry without its version is harmless:
 * readers compare the two.
 * @param engine without seals. @param mayExpire false when no version expires, which saves a walk over CF_WRITE.
 */
export async function checkExpiries(
  engine: Engine,
  onFinding: (finding: Finding) => Promise<void> | void,
  mayExpire = true,
): Promise<CheckedExpiries> {
  const counted = { records: 0, bytes: 0 }
  for await (const page of pagesOf(engine, EXPIRY_RANGE, RECORDS_AT_A_TIME))
    for (const [stored, sealed] of page) {
      counted.records++
      counted.bytes += stored.length + sealed.length
      const isRead = isEntry(stored)
      if (isRead && opened(stored, sealed) !== undefined) continue
      // The key has all the information.
      const ops = [
        isRead ? ({ type: 'put', key: stored, value: NOTHING } as const) : ({ type: 'del', key: stored } as const),
      ]
      const why = isRead ? 'fails its checksum' : 'does not decode'
      await onFinding({ kind: 'damaged_record', message: `${recordName(stored)} ${why}`, isLoss: false, ops })
    }
  if (!mayExpire) return counted
  const bound = await safePointOf(engine)
  for await (const page of pagesOf(engine, keyRange(CF_WRITE), RECORDS_AT_A_TIME)) {
    const expiring = page.flatMap(([stored, sealed]) => {
      const write = writeIn(stored, sealed)
      if (write === undefined || write.expireTs === 0 || expiryTs(write) <= bound) return []
      return [{ key: decodeKey(stored), write }]
    })
    if (expiring.length === 0) continue
    const names = expiring.map(({ key, write }) => expiryKey(expiryTs(write), key, write.commitTs))
    const entries = await engine.getMany(names)
    for (const [i, { key, write }] of expiring.entries()) {
      if (entries[i] !== undefined) continue
      const { commitTs } = write
      const message = `the put record of ${printKey(key)} at ${commitTs} has no entry of its expiry at ${expiryTs(write)}`
      const ops = [{ type: 'put', key: names[i] as Buffer, value: NOTHING } as const]
      await onFinding({ kind: 'missing_expiry', key, ts: commitTs, message, isLoss: false, ops })
    }
  }
  return counted
}

function isEntry(stored: Buffer): boolean {
  try {
    const { expiryTs: at, key, commitTs } = decodeExpiryKey(stored)
    return expiryKey(at, key, commitTs).equals(stored)
  } catch (error) {
    if (error instanceof CorruptRecord) return false
    throw error
  }
}

/** Collections have removed entries up to here. A damaged record has its own finding. */
async function safePointOf(engine: Engine): Promise<Timestamp> {
  try {
    return await readMetaNumber(sealedEngine(engine), META_SAFE_POINT)
  } catch (error) {
    if (error instanceof CorruptRecord) return Number.MAX_SAFE_INTEGER
    throw error
  }
}

/** @returns undefined unless the record is a Put. A damaged record has its own finding. */
function writeIn(stored: Buffer, sealed: Buffer): WriteRecord | undefined {
  try {
    const value = opened(stored, sealed)
    const write = value && decodeWrite(value, decodeKeyTs(stored))
    decodeKey(stored)
    return write?.type === 'put' ? write : undefined
  } catch (error) {
    if (error instanceof CorruptRecord) return undefined
    throw error
  }
}
