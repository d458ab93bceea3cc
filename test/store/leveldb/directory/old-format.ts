import { formatOp } from '../../../../src/store/leveldb/directory/data-directory.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { opened, seal } from '../../../../src/store/leveldb/engine/checksum.js'
import { type Engine, type EngineOp, pagesOf } from '../../../../src/store/leveldb/engine/engine.js'
import { CF_SYSTEM, META_FORMAT, metaKey, nameOfSystem } from '../../../../src/store/leveldb/records/keyspace.js'

export const EVERYTHING = { gte: Buffer.alloc(0), lt: Buffer.alloc(256, 0xff) }

/**
 * Takes from a closed directory what older formats did not have: CF_SYSTEM, whose records go where they were then; the seals before
 * format 3; and in format 1 the keys of `isNew`.
 */
export async function makeOlder(
  directory: string,
  version: 1 | 2 | 3,
  isNew: (key: Buffer) => boolean = () => false,
): Promise<void> {
  const engine = await openLevelDb(directory)
  const ops: EngineOp[] = [formatOp(version)]
  for (const [stored, sealed] of await entriesOfEngine(engine)) {
    const value = opened(stored, sealed)
    const key = placeOfFormat3(stored)
    if (isNew(stored) || key !== stored) ops.push({ type: 'del', key: stored })
    if (isNew(stored) || stored.equals(META_FORMAT) || value === undefined) continue
    if (version < 3) ops.push({ type: 'put', key, value })
    else if (key !== stored) ops.push({ type: 'put', key, value: seal(key, value) })
  }
  await engine.write(ops, false)
  await engine.close()
}

function placeOfFormat3(stored: Buffer): Buffer {
  if (stored[0] !== CF_SYSTEM) return stored
  const name = nameOfSystem(stored)
  const outcome = /^outcome\/(.*)$/s.exec(name)?.[1]
  return outcome === undefined ? metaKey(`server/${name}`) : Buffer.from(`i${outcome}`, 'latin1')
}

export async function entriesOfEngine(engine: Engine): Promise<[Buffer, Buffer][]> {
  const entries: [Buffer, Buffer][] = []
  for await (const page of pagesOf(engine, EVERYTHING, 1000)) entries.push(...page)
  return entries
}
