import { copyFile, link, mkdir, readdir, rm, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { ClassicLevel } from 'classic-level'
import { MARK_AHEAD_MS } from '../../../limits.js'
import { timestampFromMs } from '../../../timestamp.js'
import { DataDirectoryError } from '../data-directory-error.js'
import { unusable } from '../directory/data-directory.js'
import { openLevelDb } from '../directory/open-level-db.js'
import { syncDirectory, syncFile } from '../directory/sync-directory.js'
import { requireRoom } from '../engine/disk-space.js'
import type { LostRecords } from '../files/lost-records.js'
import { mendFiles } from '../files/mend-files.js'
import { type FileFault, verifyFiles } from '../files/verify-files.js'
import { verifiedFiles } from '../integrity/check-directory.js'
import type { Loss } from './loss.js'
import { RepairJournal } from './repair-journal.js'
import { type RepairedRecords, repairRecords } from './repair-records.js'

const EVERYTHING = { gte: Buffer.alloc(0), lt: Buffer.alloc(256, 0xff) }

export interface RepairOptions {
  readonly say: (line: string) => void
  readonly isDryRun: boolean
  readonly keepsCopy: boolean
  readonly onProgress?: (line: string) => void
  readonly onLoss?: (loss: Loss) => void
  /** Sets the oracle's mark again, even to a lower one: for a mark of a wrong clock. */
  readonly resetsMark?: boolean
  /** Keeps the log's records behind a damaged one, though they may build on lost ones. */
  readonly keepsLater?: boolean
  readonly now?: () => number
}

export interface Repaired {
  readonly isSound: boolean
  readonly findings: number
  readonly restored: number
  readonly removed: number
  /** Certain or possible losses of clients' data. A range of unknown length counts as one. 0: every read answers as before. */
  readonly losses: number
}

/**
 * Makes a damaged database fit to serve from, and reports the losses. Changes nothing in a sound one.
 * @throws DataDirectoryError when there is no database, or it is in use.
 */
export async function repairDirectory(directory: string, options: RepairOptions): Promise<Repaired> {
  const { say, isDryRun, keepsCopy, now = Date.now } = options
  const { faults } = await verifiedFiles(directory, options.onProgress)
  for (const { message } of faults) say(`damaged: ${message}`)
  const copy =
    isDryRun || keepsCopy ? await copyOf(directory, isDryRun ? 'dry-run' : 'before-repair', now()) : undefined
  if (copy !== undefined) say(isDryRun ? `working on a copy, ${copy}` : `keeping the database as it is in ${copy}`)
  let isCopyKept = !isDryRun
  try {
    const repaired = await repairInPlace(isDryRun && copy !== undefined ? copy : directory, faults, options).catch(
      (error: unknown) => {
        throw unfinished(directory, error)
      },
    )
    if (copy !== undefined && isCopyKept && repaired.findings === 0) {
      say('nothing was damaged: the copy goes')
      isCopyKept = false
    }
    return repaired
  } finally {
    if (copy !== undefined && !isCopyKept) await rm(copy, { recursive: true, force: true })
  }
}

async function repairInPlace(
  directory: string,
  faults: readonly FileFault[],
  options: RepairOptions,
): Promise<Repaired> {
  const { say, onLoss, onProgress, resetsMark = false, keepsLater = false, now = Date.now } = options
  const journal = await RepairJournal.open(directory)
  const lost = [...journal.before]
  let needsRebuild = journal.isContinued
  if (faults.length > 0) {
    await requireRoom(directory).catch((error: Error) => {
      throw new DataDirectoryError(`there is no room to repair ${directory}: ${error.message}`)
    })
    say(
      `mending files: bad blocks are left out of their tables, ${keepsLater ? 'bad records out of the log' : 'the log ends before its first bad record'}`,
    )
    const mended = await mendFiles(directory, faults, {
      keepsLater,
      onLost: async (more) => {
        await journal.add(more)
        lost.push(...more)
      },
    })
    if (mended.needsRebuild) {
      say('having LevelDB make its MANIFEST again from the tables that there are')
      lost.push(...(await remakeManifest(directory)))
      needsRebuild = true
    }
  }
  const engine = await openLevelDb(directory)
  let records: RepairedRecords
  try {
    // LevelDB's repair puts all tables on one level, where look-ups trust the youngest table, not the youngest record.
    if (needsRebuild) await engine.compactRange(EVERYTHING.gte, EVERYTHING.lt)
    records = await repairRecords(engine, directory, {
      say,
      onLoss,
      onProgress,
      lost,
      areFilesDamaged: faults.length > 0,
      resetsMark,
      present: timestampFromMs(now() + MARK_AHEAD_MS),
    })
  } finally {
    await engine.close()
  }
  await journal.remove()
  const after = await verifyFiles(directory)
  for (const { message } of after.faults) say(`still damaged: ${message}`)
  return {
    isSound: after.faults.length === 0 && records.remaining === 0,
    findings: faults.length + records.findings,
    restored: records.restored,
    removed: records.removed,
    losses: records.losses,
  }
}

/** Turns errors of the system, such as a full disk, into one line. */
function unfinished(directory: string, error: unknown): unknown {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  if (error instanceof DataDirectoryError || !(cause instanceof Error) || !('code' in cause)) return error
  const detail = `the repair of ${directory} was interrupted, and has to be run again: ${cause.message}`
  return new DataDirectoryError(detail, { cause: error })
}

async function copyOf(directory: string, what: string, nowMs: number): Promise<string> {
  const stamp = new Date(nowMs).toISOString().replaceAll(/[-:]|\..*/g, '')
  const name = `${directory.replace(/\/+$/, '')}.${what}-${stamp}`
  for (let i = 1; ; i++) {
    const copy = i === 1 ? name : `${name}-${i}`
    try {
      await mkdir(copy)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') continue
      throw unusable(directory, error)
    }
    try {
      await copyFiles(directory, copy)
      return copy
    } catch (error) {
      await rm(copy, { recursive: true, force: true })
      throw unusable(directory, error)
    }
  }
}

/** Tables are never modified, so they get a second name (a hard link). Other files are copied. */
async function copyFiles(from: string, to: string): Promise<void> {
  for (const file of await readdir(from)) {
    if (!(await stat(join(from, file))).isFile()) continue
    if (file.endsWith('.ldb'))
      await link(join(from, file), join(to, file)).catch(() => copyFile(join(from, file), join(to, file)))
    else await copyFile(join(from, file), join(to, file))
    await syncFile(join(to, file))
  }
  // Must be on disk before anything is mended: power loss must not leave a mended directory and an incomplete copy.
  await syncDirectory(to)
  await syncDirectory(dirname(resolve(to)))
}

/** LevelDB's repair moves unreadable tables to a directory of their own. */
async function remakeManifest(directory: string): Promise<LostRecords[]> {
  const files = await readdir(directory)
  // LevelDB makes a new database of a directory without tables and logs.
  if (!files.some((file) => /\.(ldb|log)$/.test(file))) {
    for (const file of files) if (/^(CURRENT|MANIFEST-)/.test(file)) await rm(join(directory, file))
    return []
  }
  await ClassicLevel.repair(directory)
  const archive = join(directory, 'lost')
  const archived = await readdir(archive).catch(() => [])
  await rm(archive, { recursive: true, force: true })
  return archived.flatMap((file) => (file.endsWith('.ldb') ? [{ kind: 'tables', file } as const] : []))
}
