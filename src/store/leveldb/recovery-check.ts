import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DataDirectoryError } from './data-directory-error.js'
import { type LogRecord, logRecords } from './leveldb-log.js'

/**
 * LevelDB opens some damaged directories without a word, and without what was lost: it makes a new database where CURRENT
 * is missing, does without a log that is missing, and passes over the damaged records of one. Those are refused here, before
 * it has changed anything. The rest it refuses itself, or nobody can know of: see docs/operations.md.
 * @throws DataDirectoryError
 */
export async function requireRecoverable(directory: string): Promise<void> {
  // Files come and go where another process has it open; LevelDB's lock will say so.
  for (let triesLeft = TRIES; ; triesLeft--) {
    try {
      return await requireWhole(directory)
    } catch (error) {
      if (triesLeft <= 1) throw error
    }
  }
}

const TRIES = 3

async function requireWhole(directory: string): Promise<void> {
  const names = await readdir(directory).catch((): string[] => []) // Whatever it is, opening will say it.
  const damaged = (what: string): DataDirectoryError =>
    new DataDirectoryError(`the data directory ${directory} is damaged: ${what}; nothing was changed`)
  if (!names.includes('CURRENT')) {
    const files = names.filter((name) => /^\d+\.(ldb|sst|log)$/.test(name))
    if (files.length > 0) throw damaged(`CURRENT is missing beside ${files.length} files of a database`)
    return
  }
  const current = (await readFile(join(directory, 'CURRENT'), 'utf8')).trim()
  const manifest = await readFile(join(directory, current)).catch(() => undefined)
  if (manifest === undefined) return
  const edits = [...logRecords(manifest)]
  if (edits.some(({ isAfterDamage }) => isAfterDamage))
    throw damaged(`${current} has a record that cannot be read, and later ones that can`)
  const oldest = oldestLog(edits)
  if (oldest === undefined) return // LevelDB will say what it misses.
  const logs = names
    .flatMap((name) => /^(\d+)\.log$/.exec(name)?.[1] ?? [])
    .filter((digits) => Number(digits) >= oldest)
    .sort((a, b) => Number(a) - Number(b))
  // 0: a database that was never opened, or that LevelDB's own repair made.
  if (oldest > 0 && Number(logs[0]) !== oldest)
    throw damaged(`${String(oldest).padStart(6, '0')}.log is missing, which ${current} needs`)
  // Batches are numbered by their operations, so one that does not follow shows that there was another before it.
  let next: bigint | undefined
  for (const digits of logs) {
    for (const { bytes, isAfterDamage } of logRecords(await readFile(join(directory, `${digits}.log`)))) {
      const isBatch = bytes.length >= BATCH_HEADER
      const sequence = isBatch ? bytes.readBigUInt64LE(0) : 0n
      // A value may look like a record, and be all that is left of a write that a crash cut off.
      const isStray = isAfterDamage && next !== undefined && (sequence < next || sequence > next + OPS_LOST_MAX)
      if (isStray) continue
      if (!isBatch || isAfterDamage || (next ?? sequence) !== sequence)
        throw damaged(`${digits}.log has a record that cannot be read, and later ones that can`)
      next = sequence + BigInt(bytes.readUInt32LE(8))
    }
  }
}

/** More than fit into the logs. */
const OPS_LOST_MAX = 1n << 24n
/** Sequence number, count. */
const BATCH_HEADER = 12

/** The log that the database of these edits begins with. @returns undefined where it says none, or makes no sense. */
function oldestLog(edits: readonly LogRecord[]): number | undefined {
  let log: number | undefined
  for (const { bytes } of edits) {
    const edit = new VersionEdit(bytes)
    while (!edit.isAtEnd) {
      const tag = edit.number()
      const fields = FIELDS[tag]
      if (fields === undefined) return undefined
      for (const field of fields) {
        const value = edit.number()
        if (field === 'bytes') edit.skip(value)
        else if (tag === LOG_NUMBER) log = value
      }
    }
  }
  return log
}

const LOG_NUMBER = 2
/** What follows each tag of a version edit. @see LevelDB's `db/version_edit.cc`. */
const FIELDS: Readonly<Record<number, readonly ('number' | 'bytes')[]>> = {
  1: ['bytes'], // comparator
  [LOG_NUMBER]: ['number'],
  3: ['number'], // next file
  4: ['number'], // last sequence
  5: ['number', 'bytes'], // compact pointer: level, key
  6: ['number', 'number'], // deleted file: level, number
  7: ['number', 'number', 'number', 'bytes', 'bytes'], // new file: level, number, size, smallest, largest
  9: ['number'], // previous log
}

class VersionEdit {
  #at = 0
  constructor(readonly bytes: Buffer) {}

  get isAtEnd(): boolean {
    return this.#at >= this.bytes.length
  }

  /** A varint. */
  number(): number {
    for (let value = 0, scale = 1; ; scale *= 128) {
      const byte = this.bytes[this.#at++] ?? 0
      value += (byte & 0x7f) * scale
      if (byte < 0x80) return value
    }
  }

  skip(bytes: number): void {
    this.#at += bytes
  }
}
