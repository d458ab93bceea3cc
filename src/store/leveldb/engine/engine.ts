import { ClassicLevel } from 'classic-level'
import { inSlices } from '../../../event-loop/slices.js'
import { type DirectoryHold, holdDirectory } from '../directory/directory-hold.js'
import { makeDirectory } from '../directory/make-directory.js'
import { syncDirectory } from '../directory/sync-directory.js'
import { dropTornEdit, requireSound } from '../files/sound-directory.js'
import { requireRoom } from './disk-space.js'

export type EngineOp =
  | { readonly type: 'put'; readonly key: Buffer; readonly value: Buffer }
  | { readonly type: 'del'; readonly key: Buffer }

export interface EngineRange {
  readonly gte: Buffer
  readonly lt: Buffer
  readonly reverse?: boolean
  /** Fill the values in; false reads keys alone. Default true. */
  readonly values?: boolean
}

export interface EngineIterator {
  /** The next `size` entries; fewer only at the end of the range. */
  nextv(size: number): Promise<[Buffer, Buffer][]>
  close(): Promise<void>
}

/** Reads of one moment. */
export interface EngineReader {
  get(key: Buffer): Promise<Buffer | undefined>
  getMany(keys: Buffer[]): Promise<(Buffer | undefined)[]>
  /** Sees the database as it is at this call. */
  iterator(range: EngineRange): EngineIterator
}

/** What the store needs of LevelDB, and all that a test has to put in its place to make the disk fail. */
export interface Engine extends EngineReader {
  /** Blocks the event loop, on the disk at worst. */
  getSync(key: Buffer): Buffer | undefined
  /** One atomic batch; with `sync`, on disk when the promise is fulfilled. */
  write(ops: readonly EngineOp[], sync: boolean): Promise<void>
  snapshot(): EngineReader & { close(): Promise<void> }
  compactRange(start: Buffer, end: Buffer): Promise<void>
  /** Bytes on disk, about; what has not left memory for a table file yet counts for nothing. */
  approximateSize(start: Buffer, end: Buffer): Promise<number>
  /** Rejects where the disk has no room for `reopen`, which would leave the database closed. */
  requireRoom(): Promise<void>
  /** Closes and opens again: after a failed write this is what settles whether it is on disk. */
  reopen(): Promise<void>
  close(): Promise<void>
}

/** The first `size` entries of a range; fewer only where it has no more. */
export async function readPage(engine: EngineReader, range: EngineRange, size: number): Promise<[Buffer, Buffer][]> {
  const iterator = engine.iterator(range)
  try {
    return await iterator.nextv(size)
  } finally {
    await iterator.close()
  }
}

/**
 * A range in pages of `size` entries, the last one shorter; leaving the loop early closes the iterator too.
 * @param first the size of the first page, where it is likely to be enough.
 */
export async function* pagesOf(
  engine: EngineReader,
  range: EngineRange,
  size: number,
  first = size,
): AsyncGenerator<[Buffer, Buffer][], void> {
  const iterator = engine.iterator(range)
  try {
    for (let wanted = first; ; wanted = size) {
      const page = await iterator.nextv(wanted)
      if (page.length > 0) yield page
      if (page.length < wanted) return
    }
  } finally {
    await iterator.close()
  }
}

/** What one crossing into LevelDB brings back at most, about. */
const PAGE_BYTES = 256 * 1024

type Level = ClassicLevel<Buffer, Buffer>
type LevelSnapshot = ReturnType<Level['snapshot']>

/**
 * As it is: see `openVerified`. Opening it again verifies the logs first.
 * @param held released when the engine is closed, or could not be opened.
 * @throws DataDirectoryError; what classic-level does: `cause.code` is `LEVEL_LOCKED` when another process has it open.
 */
export async function openLevelDb(directory: string, held?: DirectoryHold): Promise<Engine> {
  if (held === undefined) await makeDirectory(directory)
  const hold = held ?? (await holdDirectory(directory))
  try {
    await dropTornEdit(directory)
    return engineOf(await opened(directory), directory, hold)
  } catch (error) {
    await hold.release()
    throw error
  }
}

async function opened(directory: string): Promise<Level> {
  const db: Level = new ClassicLevel(directory, { keyEncoding: 'buffer', valueEncoding: 'buffer' })
  await db.open()
  return db
}

function engineOf(db: Level, directory: string, hold: DirectoryHold): Engine {
  return {
    ...readerOf(db),
    getSync: (key) => db.getSync(key),
    // A chained batch costs a fifth of what an array of operations does, which abstract-level copies one by one.
    async write(ops, sync) {
      const filled = inSlices(filledBatch(db, ops))
      const batch = filled instanceof Promise ? await filled : filled
      await batch.write({ sync })
    },
    snapshot() {
      const snapshot = db.snapshot()
      return { ...readerOf(db, snapshot), close: () => snapshot.close() }
    },
    compactRange: (start, end) => db.compactRange(start, end),
    approximateSize: (start, end) => db.approximateSize(start, end),
    requireRoom: () => requireRoom(directory),
    async reopen() {
      await db.close()
      await requireSound(directory, 0)
      await dropTornEdit(directory)
      await db.open()
      await syncDirectory(directory)
    },
    async close() {
      await db.close()
      await hold.release()
    },
  }
}

/** Operations between two looks at the clock. */
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
        // classic-level ends a page early once it holds `highWaterMarkBytes`: only an empty one ends the range.
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
