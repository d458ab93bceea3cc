import { SHORT_VALUE_BYTES_MAX } from '../../../limits.js'
import { outcomeKey } from '../../../percolator/codec/outcome-key.js'
import { encodeWrite } from '../../../percolator/codec/write.js'
import { opened, seal, sealedOp } from '../engine/checksum.js'
import { type Engine, type EngineOp, type EngineRange, pagesOf, readPage } from '../engine/engine.js'
import { metaKey, nameOfMeta, newestKey, systemKey, valueKey, writeKey } from '../records/keyspace.js'
import { encodeNewest } from '../records/newest-record.js'

/** An outcome may have some MiB. */
const RECORDS_AT_A_TIME = 16
const BATCH_BYTES = 1024 * 1024
/** Cost of an operation besides its value. */
const OP_BYTES = 256

const OUTCOME = 'outcome/'
const OUTCOMES_OF_FORMAT_4: EngineRange = { gte: systemKey(OUTCOME), lt: systemKey('outcome0') }
/** Format 3 had outcomes under a first byte of their own, and pins among the meta records. */
export const OUTCOMES_OF_FORMAT_3: EngineRange = { gte: Buffer.of(0x69), lt: Buffer.of(0x6a) }
const SERVER = 'server/'
export const SERVER_OF_FORMAT_3: EngineRange = { gte: metaKey(SERVER), lt: metaKey('server0') }
/** Below all commits. The answer in such an outcome already has its own commit_ts. */
const ROW_TS = { startTs: 1, commitTs: 2 } as const

interface Move {
  readonly range: EngineRange
  /** The new key of a record. If it is present, the record was moved. */
  readonly placeOf: (stored: Buffer) => Buffer
  /** @param sealed a value whose seal may not match the old key. `perkv repair` then reports it under the new one. */
  readonly ops: (stored: Buffer, sealed: Buffer) => EngineOp[]
}

const pinKey = (stored: Buffer): Buffer => systemKey(nameOfMeta(stored).slice(SERVER.length))

const PINS_OF_FORMAT_3: Move = {
  range: SERVER_OF_FORMAT_3,
  placeOf: pinKey,
  ops: (stored, sealed) => {
    const key = pinKey(stored)
    const value = opened(stored, sealed)
    return [{ type: 'put', key, value: value === undefined ? sealed : seal(key, value) }]
  },
}

/** Outcomes of Idempotency-Keys become rows. @param prefixBytes length of the prefix of the old keys. */
function outcomes(range: EngineRange, prefixBytes: number): Move {
  const outcomeKeyOf = (stored: Buffer): Buffer => outcomeKey(stored.subarray(prefixBytes))
  return {
    range,
    placeOf: (stored) => newestKey(outcomeKeyOf(stored)),
    ops: (stored, sealed) => {
      const { startTs, commitTs } = ROW_TS
      const key = outcomeKeyOf(stored)
      const value = opened(stored, sealed)
      if (value === undefined) return [{ type: 'put', key: writeKey(key, commitTs), value: sealed }]
      const isShort = value.length <= SHORT_VALUE_BYTES_MAX
      const ends = { expireTs: 0, leaseFence: 0, isProtected: false, hasOverlappedRollback: false }
      const write = encodeWrite({ type: 'put', ...ROW_TS, shortValue: isShort ? value : undefined, ...ends })
      const ops: EngineOp[] = [
        { type: 'put', key: writeKey(key, commitTs), value: write },
        { type: 'put', key: newestKey(key), value: encodeNewest(commitTs, write) },
      ]
      if (!isShort) ops.push({ type: 'put', key: valueKey(key, startTs), value })
      return ops.map(sealedOp)
    },
  }
}

const MOVES: readonly Move[] = [
  outcomes(OUTCOMES_OF_FORMAT_4, OUTCOMES_OF_FORMAT_4.gte.length), // First, because leftovers of format 3 are older.
  outcomes(OUTCOMES_OF_FORMAT_3, OUTCOMES_OF_FORMAT_3.gte.length),
  PINS_OF_FORMAT_3,
]

/**
 * Moves the records that older formats had elsewhere: outcomes to rows, and pins of format 3 to CF_SYSTEM. At any time a record
 * is in exactly one place, so the next start moves what a crash has left. Costs three seeks when nothing is left.
 * @param engine without seals.
 */
export async function moveSystemRecords(engine: Engine): Promise<void> {
  for (const { range, placeOf, ops: opsOf } of MOVES) {
    const ops: EngineOp[] = []
    let bytes = 0
    for await (const page of pagesOf(engine, range, RECORDS_AT_A_TIME)) {
      const present = await engine.getMany(page.map(([stored]) => placeOf(stored)))
      for (const [i, [stored, sealed]] of page.entries()) {
        ops.push({ type: 'del', key: stored })
        // If the new record is present, the old one had been deleted, and a damaged file brought it back.
        if (present[i] === undefined) ops.push(...opsOf(stored, sealed))
        bytes += sealed.length + OP_BYTES
      }
      if (bytes < BATCH_BYTES) continue
      // Synced, because LevelDB may begin a new log now, and later fsyncs would not cover this batch.
      await engine.write(ops.splice(0), true)
      bytes = 0
    }
    if (ops.length > 0) await engine.write(ops, true)
  }
}

export async function hasUnmoved(engine: Engine): Promise<boolean> {
  for (const { range } of MOVES) if ((await readPage(engine, { ...range, values: false }, 1)).length > 0) return true
  return false
}
