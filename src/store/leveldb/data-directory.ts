import { randomBytes } from 'node:crypto'
import { CorruptRecord } from '../../percolator/codec/key.js'
import { packRecord, unpackRecord } from '../../percolator/codec/record.js'
import { DataDirectoryError } from './data-directory-error.js'
import { type Engine, type EngineOp, openLevelDb } from './engine.js'
import { metaKey } from './keyspace.js'
import { buildNewest } from './newest-records.js'

/** Written by this version; a database of a higher one is refused. */
export const FORMAT_VERSION = 2

const META_FORMAT = metaKey('format')
export const META_MARK = metaKey('oracle/mark')
export const META_SAFE_POINT = metaKey('gc/safe_point')
export const META_RESTORE = metaKey('restore')
const META_CURSOR_SECRET = metaKey('cursor/secret')

/**
 * Opens the LevelDB of a directory, makes one where there is none, and checks that it is PerKV's and not too new.
 * @param open tests put a failing engine in. @throws DataDirectoryError
 */
export async function openDataDirectory(
  directory: string,
  open: (directory: string) => Promise<Engine> = openLevelDb,
): Promise<Engine> {
  let engine: Engine
  try {
    engine = await open(directory)
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : (error as Error)
    const isInUse = 'code' in cause && cause.code === 'LEVEL_LOCKED'
    throw new DataDirectoryError(
      isInUse
        ? `the data directory ${directory} is in use by another process`
        : `the data directory ${directory} cannot be opened: ${cause.message}`,
      { cause: error },
    )
  }
  try {
    await checkFormat(engine, directory)
    return engine
  } catch (error) {
    await engine.close()
    throw error
  }
}

async function checkFormat(engine: Engine, directory: string): Promise<void> {
  const format = await readMetaNumber(engine, META_FORMAT)
  if (format > FORMAT_VERSION) {
    const detail = `the data directory ${directory} has format ${format}, written by a newer PerKV; this one reads up to ${FORMAT_VERSION}`
    throw new DataDirectoryError(detail)
  }
  if (format === FORMAT_VERSION) return
  const inForce: EngineOp = { type: 'put', key: META_FORMAT, value: packRecord([FORMAT_VERSION]) }
  if (format === 1) {
    await buildNewest(engine, await readMetaNumber(engine, META_MARK))
    return engine.write([inForce], true)
  }
  const iterator = engine.iterator({ gte: Buffer.alloc(0), lt: Buffer.alloc(256, 0xff), values: false })
  const entries = await iterator.nextv(1)
  await iterator.close()
  if (entries.length > 0) throw new DataDirectoryError(`the data directory ${directory} is a LevelDB, but not PerKV's`)
  await engine.write([inForce], true)
}

/** Made once for a database: signs its scan cursors. */
export async function cursorSecretOf(engine: Engine): Promise<Uint8Array> {
  const stored = await engine.get(META_CURSOR_SECRET)
  if (stored !== undefined) return stored
  const value = randomBytes(32)
  await engine.write([{ type: 'put', key: META_CURSOR_SECRET, value }], true)
  return value
}

/** 0 when there is none. */
export async function readMetaNumber(engine: Engine, key: Buffer): Promise<number> {
  const bytes = await engine.get(key)
  if (bytes === undefined) return 0
  const [value] = unpackRecord(bytes, 'meta', 1)
  if (typeof value !== 'number' || !Number.isSafeInteger(value)) throw new CorruptRecord('a meta record is no number')
  return value
}
