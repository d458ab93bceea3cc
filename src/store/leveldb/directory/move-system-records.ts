import type { SystemName } from '../../system-records.js'
import { opened, seal } from '../engine/checksum.js'
import { type Engine, type EngineOp, type EngineRange, pagesOf, readPage } from '../engine/engine.js'
import { metaKey, nameOfMeta, systemKey } from '../records/keyspace.js'

/** Outcomes may be of some MiB each. */
const RECORDS_AT_A_TIME = 16
const BATCH_BYTES = 1024 * 1024
/** What an operation costs beside its value. */
const OP_BYTES = 256

/** Where format 3 had outcomes, and what the server remembered. */
export const OUTCOMES_OF_FORMAT_3: EngineRange = { gte: Buffer.of(0x69), lt: Buffer.of(0x6a) }
const SERVER = 'server/'
export const SERVER_OF_FORMAT_3: EngineRange = { gte: metaKey(SERVER), lt: metaKey('server0') }

const MOVES: readonly { readonly range: EngineRange; readonly nameOf: (stored: Buffer) => string }[] = [
  {
    range: OUTCOMES_OF_FORMAT_3,
    nameOf: (stored) => `${'outcome/' satisfies SystemName}${stored.toString('latin1', 1)}`,
  },
  { range: SERVER_OF_FORMAT_3, nameOf: (stored) => nameOfMeta(stored).slice(SERVER.length) },
]

/**
 * Moves what format 3 had in two places to CF_SYSTEM. A record is in one place or the other at any time, so what a crash leaves is
 * moved at the next start; where nothing is left this costs two seeks.
 * @param engine beneath the seals.
 */
export async function moveSystemRecords(engine: Engine): Promise<void> {
  for (const { range, nameOf } of MOVES) {
    const ops: EngineOp[] = []
    let bytes = 0
    for await (const page of pagesOf(engine, range, RECORDS_AT_A_TIME)) {
      const keys = page.map(([stored]) => systemKey(nameOf(stored)))
      const present = await engine.getMany(keys)
      for (const [i, [stored, sealed]] of page.entries()) {
        const key = keys[i] as Buffer
        ops.push({ type: 'del', key: stored })
        // Where there is one already, the old one was deleted before, and damage to a file brought it back.
        if (present[i] === undefined) ops.push({ type: 'put', key, value: resealed(stored, sealed, key) })
        bytes += sealed.length + OP_BYTES
      }
      if (bytes < BATCH_BYTES) continue
      await engine.write(ops.splice(0), true) // LevelDB may begin a new log after it, and later fsyncs are of that.
      bytes = 0
    }
    if (ops.length > 0) await engine.write(ops, true)
  }
}

/** Whether `moveSystemRecords` has something to do. */
export async function hasUnmoved(engine: Engine): Promise<boolean> {
  for (const { range } of MOVES) if ((await readPage(engine, { ...range, values: false }, 1)).length > 0) return true
  return false
}

/** A value whose seal does not match goes as it is: its seal does not match the new key either, and `perkv repair` tells it. */
function resealed(stored: Buffer, sealed: Buffer, key: Buffer): Buffer {
  const value = opened(stored, sealed)
  return value === undefined ? sealed : seal(key, value)
}
