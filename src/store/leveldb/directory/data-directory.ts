import { randomBytes } from 'node:crypto'
import { afterPrefix } from '../../../bytes/key-range.js'
import { RESERVED_PREFIX } from '../../../bytes/reserved-keys.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import { packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import { DataDirectoryError } from '../data-directory-error.js'
import { sealedEngine } from '../engine/checksum.js'
import { type Engine, type EngineOp, readPage } from '../engine/engine.js'
import { readMetaNumber } from '../engine/meta-number.js'
import { crc32c } from '../files/crc32c.js'
import { damagedDirectory, isLocked } from '../files/sound-directory.js'
import { CF_LOCK, CF_WRITE, keyRange, META_CURSOR_SECRET, META_FORMAT, META_MARK } from '../records/keyspace.js'
import { beginLog } from './begin-log.js'
import { moveSystemRecords } from './move-system-records.js'
import { buildNewest } from './newest-records.js'
import { sealRecords } from './seal-records.js'

export const FORMAT_VERSION = 7

const LOG_FORMAT = 6

/**
 * Opens the LevelDB of a directory, or makes one, and checks that it is PerKV's and not too new.
 * @param open opens the LevelDB; tests pass a failing engine.
 * @param onConvert receives an older format before its conversion, which may take minutes.
 * @throws DataDirectoryError
 */
export async function openDataDirectory(
  directory: string,
  open: (directory: string) => Promise<Engine>,
  onConvert: (from: number) => void = () => {},
): Promise<Engine> {
  let engine: Engine | undefined
  try {
    engine = await open(directory)
    await checkFormat(engine, directory, onConvert)
    return sealedEngine(engine)
  } catch (error) {
    await engine?.close()
    throw unusable(directory, error)
  }
}

/** Says in one line why a directory cannot be served from. Returns other errors unchanged. */
export function unusable(directory: string, error: unknown): unknown {
  if (error instanceof DataDirectoryError || !(error instanceof Error)) return error
  const cause = error.cause instanceof Error ? error.cause : error
  if (error instanceof CorruptRecord) return damagedDirectory(directory, [error.message])
  if (!('code' in cause)) return error
  if (cause.code === 'LEVEL_CORRUPTION') return damagedDirectory(directory, [cause.message])
  const why = isLocked(error) ? 'is in use by another process' : `cannot be opened: ${cause.message}`
  return new DataDirectoryError(`the data directory ${directory} ${why}`, { cause: error })
}

async function checkFormat(engine: Engine, directory: string, onConvert: (from: number) => void): Promise<void> {
  const format = await readFormat(engine)
  if (format === 0) {
    const entries = await readPage(engine, { gte: Buffer.alloc(0), lt: Buffer.alloc(256, 0xff), values: false }, 1)
    if (entries.length > 0)
      throw new DataDirectoryError(`the data directory ${directory} is a LevelDB, but not PerKV's`)
    return engine.write([formatOp(FORMAT_VERSION)], true)
  }
  if (format < FORMAT_VERSION) onConvert(format)
  await convertFormat(engine, directory)
}

/**
 * Converts an older format to the present one, or completes an interrupted conversion. @throws DataDirectoryError for a newer
 * one.
 */
export async function convertFormat(engine: Engine, directory: string): Promise<void> {
  const format = await readFormat(engine)
  if (format > FORMAT_VERSION) {
    const detail = `the data directory ${directory} has format ${format}, written by a newer PerKV; this one reads up to ${FORMAT_VERSION}`
    throw new DataDirectoryError(detail)
  }
  if (format < FORMAT_VERSION) await requireNoReserved(engine, directory)
  if (format === 1) {
    await buildNewest(engine, await readMetaNumber(engine, META_MARK))
    await engine.write([formatOp(2)], true)
  }
  if (format < 3) await sealRecords(engine, formatOp(3))
  // Written before the records move: an older version of PerKV would miss outcomes and pins in a directory that is half moved,
  // and one that reads format 6 would find versions that have expired.
  if (format < FORMAT_VERSION) {
    const log = format < LOG_FORMAT ? await beginLog(engine) : []
    await engine.write([formatOp(FORMAT_VERSION), ...log], true)
  }
  await moveSystemRecords(engine)
}

/** Older versions let users write keys that are reserved now. They would have no place. @throws DataDirectoryError */
async function requireNoReserved(engine: Engine, directory: string): Promise<void> {
  const end = afterPrefix(RESERVED_PREFIX)
  for (const cf of [CF_WRITE, CF_LOCK] as const)
    if ((await readPage(engine, { ...keyRange(cf, RESERVED_PREFIX, end), values: false }, 1)).length > 0)
      throw new DataDirectoryError(
        `the data directory ${directory} has keys that begin with the bytes 00 00 and perkv/, which are reserved for the server now: remove them with the version of PerKV that wrote them`,
      )
}

/** The only record without a seal, so that every version can read it. From format 3 on it has its own checksum. */
export function formatOp(version: number): EngineOp & { type: 'put' } {
  return { type: 'put', key: META_FORMAT, value: packRecord(version < 3 ? [version] : [version, formatCrc(version)]) }
}

function formatCrc(version: number): number {
  return crc32c(Buffer.from(`format ${version}`))
}

/** @param engine without seals. @returns 0 for a directory without a format record. @throws CorruptRecord */
export async function readFormat(engine: Engine): Promise<number> {
  const bytes = await engine.get(META_FORMAT)
  if (bytes === undefined) return 0
  const [version, crc] = unpackRecord(bytes, 'format', 1)
  if (typeof version !== 'number' || !Number.isSafeInteger(version) || version < 1)
    throw new CorruptRecord('the format record holds no version')
  // A flipped bit makes a newer version too. One that really is newer may have its checksum elsewhere.
  const isNewer = version > FORMAT_VERSION && typeof crc !== 'number'
  if (!isNewer && crc !== (version < 3 ? undefined : formatCrc(version)))
    throw new CorruptRecord('the format record fails its checksum')
  return version
}

export async function cursorSecretOf(engine: Engine): Promise<Uint8Array> {
  const stored = await engine.get(META_CURSOR_SECRET)
  if (stored !== undefined) return stored
  const value = randomBytes(32)
  await engine.write([{ type: 'put', key: META_CURSOR_SECRET, value }], true)
  return value
}
