import { CorruptRecord } from '../../../percolator/codec/key.js'
import { DataDirectoryError } from '../data-directory-error.js'
import { FORMAT_VERSION, readFormat } from '../directory/data-directory.js'
import { requireUnheld } from '../directory/directory-hold.js'
import { hasUnmoved } from '../directory/move-system-records.js'
import { isHalfMade } from '../directory/never-used.js'
import { openLevelDb } from '../directory/open-level-db.js'
import { requireOwn } from '../directory/require-own.js'
import { requireUnlocked } from '../files/sound-directory.js'
import { type VerifiedFiles, verifyFiles } from '../files/verify-files.js'
import type { Finding } from './check-key.js'
import { type CheckedRecords, checkRecords } from './check-records.js'

export interface CheckDirectoryOptions {
  readonly onFinding: (finding: Finding) => Promise<void> | void
  readonly onProgress?: (line: string) => void
  readonly now?: () => number
}

export interface CheckedDirectory {
  readonly files: VerifiedFiles
  /** Absent when files are damaged, because opening the database would change them. */
  readonly records: CheckedRecords | undefined
  readonly isSound: boolean
}

/**
 * Verifies the files, then the records. Changes nothing but what LevelDB tidies up when it opens.
 * @throws DataDirectoryError when there is no database of this format, or it is in use.
 */
export async function checkDirectory(directory: string, options: CheckDirectoryOptions): Promise<CheckedDirectory> {
  const files = await verifiedFiles(directory, options.onProgress)
  if (files.faults.length > 0) return { files, records: undefined, isSound: false }
  const engine = await openLevelDb(directory)
  try {
    let findings = 0
    const format = await readFormat(engine).catch(async (error: unknown) => {
      if (!(error instanceof CorruptRecord)) throw error
      findings = 1
      await options.onFinding({ kind: 'bad_meta', message: error.message, isLoss: false, ops: [] })
      return FORMAT_VERSION
    })
    if (format !== FORMAT_VERSION) throw otherFormat(directory, format)
    if (await hasUnmoved(engine)) throw halfConverted(directory)
    const records = await checkRecords(engine, { ...options, onProgress: progressOf(options.onProgress) })
    findings += records.findings
    return { files, records: { ...records, findings }, isSound: findings === 0 }
  } finally {
    await engine.close()
  }
}

export async function verifiedFiles(
  directory: string,
  onProgress: CheckDirectoryOptions['onProgress'],
): Promise<VerifiedFiles> {
  await requireUnheld(directory)
  await requireOwn(directory)
  await requireUnlocked(directory)
  const files = await verifyFiles(directory, {
    onProgress: (done, all) => onProgress?.(`files ${Math.floor((100 * done) / Math.max(1, all))} %`),
  }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === undefined) throw error
    throw new DataDirectoryError(`the data directory ${directory} cannot be read: ${error.message}`, { cause: error })
  })
  if ((files.files === 0 && files.faults.length === 0) || (await isHalfMade(directory)))
    throw new DataDirectoryError(`there is no database in ${directory}`)
  if (files.faults.length > 0) await requireUnlocked(directory) // Another process may have opened it in the meantime.
  return files
}

export function progressOf(onProgress: CheckDirectoryOptions['onProgress']): (keys: number) => void {
  return (keys) => {
    if (keys % 10_000 === 0) onProgress?.(`${keys.toLocaleString('en')} keys`)
  }
}

function otherFormat(directory: string, format: number): DataDirectoryError {
  const what =
    format === 0
      ? "is a LevelDB, but not PerKV's"
      : format > FORMAT_VERSION
        ? `has format ${format}, written by a newer PerKV`
        : `has format ${format}: perkv serve converts it`
  return new DataDirectoryError(`the data directory ${directory} ${what}`)
}

function halfConverted(directory: string): DataDirectoryError {
  const detail = `the data directory ${directory} was being converted to format ${FORMAT_VERSION}: perkv serve goes on with it`
  return new DataDirectoryError(detail)
}
