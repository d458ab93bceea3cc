import { formatOp } from '../../../../src/store/leveldb/directory/data-directory.js'
import { opened } from '../../../../src/store/leveldb/engine/checksum.js'
import { type Engine, type EngineOp, openLevelDb, pagesOf } from '../../../../src/store/leveldb/engine/engine.js'
import { META_FORMAT } from '../../../../src/store/leveldb/records/keyspace.js'

export const EVERYTHING = { gte: Buffer.alloc(0), lt: Buffer.alloc(256, 0xff) }

/** Takes from a closed directory what older formats did not have: the seals, and in format 1 the keys of `isNew`. */
export async function makeOlder(directory: string, version: 1 | 2, isNew: (key: Buffer) => boolean): Promise<void> {
  const engine = await openLevelDb(directory)
  const ops: EngineOp[] = [formatOp(version)]
  for (const [key, sealed] of await entriesOfEngine(engine)) {
    const value = opened(key, sealed)
    if (isNew(key)) ops.push({ type: 'del', key })
    else if (!key.equals(META_FORMAT) && value !== undefined) ops.push({ type: 'put', key, value })
  }
  await engine.write(ops, false)
  await engine.close()
}

export async function entriesOfEngine(engine: Engine): Promise<[Buffer, Buffer][]> {
  const entries: [Buffer, Buffer][] = []
  for await (const page of pagesOf(engine, EVERYTHING, 1000)) entries.push(...page)
  return entries
}
