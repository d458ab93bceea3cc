import { ClassicLevel } from 'classic-level'
import { runSliced } from '../../../event-loop/time-slicer.js'
import { BLOCK_CACHE_BYTES_DEFAULT } from '../../../limits.js'
import { dropTornEdit, requireSoundDirectory } from '../files/sound-directory.js'
import { requireRoom } from './disk-space.js'
import type { Engine, EngineOp, EngineReader, TableLevel } from './engine.js'

/** Approximate limit on the bytes that one crossing into LevelDB returns. */
const PAGE_BYTES = 256 * 1024

type Level = ClassicLevel<Buffer, Buffer>
type LevelSnapshot = ReturnType<Level['snapshot']>

/** Files written with any tuning can be read with any other, because each block says whether it is compressed. */
export interface LevelTuning {
  readonly blockCacheBytes?: number | undefined
  readonly compression?: 'snappy' | 'none' | undefined
}

export interface LevelHooks {
  readonly onReopen: () => Promise<void>
  readonly onClose: () => Promise<void>
}

/**
 * Opens the LevelDB in `directory`. Its `reopen` verifies the logs first.
 * @throws the errors of classic-level: `cause.code` is `LEVEL_LOCKED` when another process has it open.
 */
export async function openLevelEngine(
  directory: string,
  hooks: LevelHooks,
  { blockCacheBytes = BLOCK_CACHE_BYTES_DEFAULT, compression = 'snappy' }: LevelTuning = {},
): Promise<Engine> {
  await dropTornEdit(directory)
  const db: Level = new ClassicLevel(directory, {
    keyEncoding: 'buffer',
    valueEncoding: 'buffer',
    cacheSize: blockCacheBytes,
    compression: compression === 'snappy',
  })
  await db.open()
  return engineOf(db, directory, hooks)
}

function engineOf(db: Level, directory: string, { onReopen, onClose }: LevelHooks): Engine {
  return {
    ...readerOf(db),
    getSync: (key) => db.getSync(key),
    // A chained batch costs a fifth of an array of operations, each of which abstract-level copies.
    async write(ops, sync) {
      const filled = runSliced(filledBatch(db, ops))
      const batch = filled instanceof Promise ? await filled : filled
      await batch.write({ sync })
    },
    snapshot() {
      const snapshot = db.snapshot()
      return { ...readerOf(db, snapshot), close: () => snapshot.close() }
    },
    compactRange: (start, end) => db.compactRange(start, end),
    approximateSize: (start, end) => db.approximateSize(start, end),
    levels: () => levelsIn(db.getProperty('leveldb.stats')),
    requireRoom: () => requireRoom(directory),
    async reopen() {
      await db.close()
      await requireSoundDirectory(directory, 0)
      await dropTornEdit(directory)
      await db.open()
      await onReopen()
    },
    async close() {
      await db.close()
      await onClose()
    },
  }
}

const OPS_AT_A_TIME = 4096

function* filledBatch(db: Level, ops: readonly EngineOp[]) {
  const batch = db.batch()
  for (let i = 0; i < ops.length; i++) {
    if (i % OPS_AT_A_TIME === OPS_AT_A_TIME - 1) yield
    const op = ops[i] as EngineOp
    if (op.type === 'put') batch.put(op.key, op.value)
    else batch.del(op.key)
  }
  return batch
}

function readerOf(db: Level, snapshot?: LevelSnapshot): EngineReader {
  const at = snapshot === undefined ? {} : { snapshot }
  return {
    get: (key) => db.get(key, at),
    getMany: (keys) => db.getMany(keys, at),
    iterator({ gte, lt, reverse = false, values = true }) {
      const iterator = db.iterator({ gte, lt, reverse, values, highWaterMarkBytes: PAGE_BYTES, ...at })
      return {
        // classic-level ends a page early once it holds `highWaterMarkBytes`, so only an empty page is the end of the range.
        async nextv(size) {
          const entries = (await iterator.nextv(size)) as [Buffer, Buffer][]
          for (let more = entries; more.length > 0 && entries.length < size; ) {
            more = (await iterator.nextv(size - entries.length)) as [Buffer, Buffer][]
            entries.push(...more)
          }
          return entries
        },
        close: () => iterator.close(),
      }
    },
  }
}

/** @param stats LevelDB's table, one line per level: number, files, MiB, and more. */
function levelsIn(stats: string): TableLevel[] {
  return [...stats.matchAll(/^ *(\d+) +(\d+) +(\d+) /gm)].map(([, level, files, mib]) => ({
    level: Number(level),
    files: Number(files),
    bytes: Number(mib) * 1024 * 1024,
  }))
}
