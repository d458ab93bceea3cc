import { seal } from '../engine/checksum.js'
import type { Engine, EngineOp } from '../engine/engine.js'
import { CF_DEFAULT, metaKey } from '../records/keyspace.js'

const META_FORMAT = metaKey('format')
/** Key of the last sealed record, during a conversion. */
const META_CURSOR = metaKey('seal/cursor')
const RECORDS_AT_A_TIME = 1000
const VALUES_AT_A_TIME = 16

/**
 * Converts a database of format 2: seals every record. A crash in between does no harm: each batch also stores how far the
 * conversion has come, and the next run continues there.
 * @param inForce the new format, written with the last batch.
 */
export async function sealRecords(engine: Engine, inForce: EngineOp): Promise<void> {
  const done = await engine.get(META_CURSOR)
  const gte = done === undefined ? Buffer.alloc(0) : Buffer.concat([done, Buffer.of(0)])
  const iterator = engine.iterator({ gte, lt: Buffer.alloc(256, 0xff) })
  try {
    for (let at = gte[0] ?? CF_DEFAULT; ; ) {
      const size = at <= CF_DEFAULT ? VALUES_AT_A_TIME : RECORDS_AT_A_TIME
      const page = await iterator.nextv(size)
      const last = page.at(-1)
      if (last === undefined) break
      const ops = page.flatMap(([key, value]): EngineOp[] =>
        key.equals(META_FORMAT) || key.equals(META_CURSOR) ? [] : [{ type: 'put', key, value: seal(key, value) }],
      )
      // Synced, because LevelDB may begin a new log now, and later fsyncs would not cover this one.
      await engine.write([...ops, { type: 'put', key: META_CURSOR, value: last[0] }], true)
      at = last[0][0] as number
    }
  } finally {
    await iterator.close()
  }
  await engine.write([{ type: 'del', key: META_CURSOR }, inForce], true)
}
