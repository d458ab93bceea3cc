import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { firstSequence, readBatches } from './batch-log.js'
import { JOURNAL } from './journal-name.js'
import { readLog } from './log-file.js'
import { tableFaults } from './table-file.js'
import { type LiveFiles, liveFiles } from './version-edit.js'

export interface FileFault {
  readonly file: string
  readonly kind: 'missing' | 'table' | 'log' | 'manifest' | 'repair'
  readonly message: string
}

export interface VerifiedFiles {
  readonly faults: readonly FileFault[]
  readonly files: number
  readonly bytes: number
  readonly isPartial: boolean
}

export interface VerifyOptions {
  /** Tables larger than this together are not read. Default: no limit. */
  readonly tableBytesMax?: number
  readonly onProgress?: (bytesDone: number, bytesAll: number) => void
}

/** After an interrupted repair, files may look sound while records are missing. */
const INTERRUPTED: FileFault = {
  file: JOURNAL,
  kind: 'repair',
  message: `${JOURNAL}: perkv repair was interrupted, and has to run again`,
}

const NOTHING: VerifiedFiles = { faults: [], files: 0, bytes: 0, isPartial: false }

/**
 * Checks the files of a LevelDB that no process has open against their checksums. LevelDB itself silently drops damaged records
 * of its log, ignores the checksums of tables, does without a missing log, and makes a new database when CURRENT is missing. A
 * log may end in a torn record.
 */
export async function verifyFiles(directory: string, options: VerifyOptions = {}): Promise<VerifiedFiles> {
  const sizes = await sizesOf(directory)
  const verified = await verifyLevelDb(directory, sizes, options)
  return sizes.has(JOURNAL) ? { ...verified, faults: [INTERRUPTED, ...verified.faults] } : verified
}

async function verifyLevelDb(
  directory: string,
  sizes: ReadonlyMap<string, number>,
  options: VerifyOptions,
): Promise<VerifiedFiles> {
  if (!sizes.has('CURRENT')) {
    // A database whose making was interrupted has no CURRENT either, but no data.
    const data = [...sizes].find(([file, size]) => size > 0 && /\.(ldb|sst|log)$/.test(file))
    return data === undefined ? NOTHING : { ...NOTHING, faults: [missing('CURRENT')] }
  }
  const live = await readManifest(directory, sizes)
  if ('message' in live) return { ...NOTHING, faults: [live] }
  const faults: FileFault[] = []
  const tables = [...live.tables].map(([number, { size }]) => ({ file: tableName(number), size }))
  const logs = [...sizes.keys()].filter((file) => isLiveLog(file, live))
  if (!hasLog(live, sizes)) faults.push(missing(logName(live.log)))
  else faults.push(...(await verifyLogs(directory, logs, live.lastSequence)))
  const bytesAll = tables.reduce((sum, { size }) => sum + size, 0)
  const isPartial = bytesAll > (options.tableBytesMax ?? Number.POSITIVE_INFINITY)
  let bytes = 0
  for (const { file, size } of tables) {
    if (!sizes.has(file)) faults.push(missing(file))
    else if (sizes.get(file) !== size) faults.push(cutTable(file, sizes.get(file) ?? 0, size))
    else if (!isPartial) faults.push(...(await verifyTable(directory, file)))
    bytes += size
    options.onProgress?.(bytes, bytesAll)
  }
  return { faults, files: tables.length + logs.length + 2, bytes: isPartial ? 0 : bytes, isPartial }
}

/** Reports the first fault only, because later records of the logs build on it. */
async function verifyLogs(directory: string, files: readonly string[], lastSequence: number): Promise<FileFault[]> {
  let next = firstSequence(lastSequence)
  for (const file of files) {
    const log = readBatches(await readFile(join(directory, file)), next)
    if (log.fault !== undefined) return [{ file, kind: 'log', message: `${file}: ${log.fault}` }]
    next = log.next
  }
  return []
}

export async function verifyTable(directory: string, file: string): Promise<FileFault[]> {
  const blocks = tableFaults(await readFile(join(directory, file)))
  const [first] = blocks
  if (first === undefined) return []
  const more = blocks.length > 1 ? `, and ${blocks.length - 1} more` : ''
  const message = `${file}: the ${first.what} at offset ${first.offset} fails its checksum${more}`
  return [{ file, kind: 'table', message }]
}

export interface Manifest extends LiveFiles {
  readonly file: string
  readonly tornAt: number | undefined
}

/**
 * Reads which files are live, or the fault in the MANIFEST. A MANIFEST may end in a torn record: LevelDB syncs each record before
 * it deletes the files that the record replaces, so after a crash all files of the earlier records are still there. When one is
 * missing, the last record was once complete; LevelDB would then go back to an older state and delete the younger tables.
 */
export async function readManifest(
  directory: string,
  sizes: ReadonlyMap<string, number>,
): Promise<Manifest | FileFault> {
  const current = await readFile(join(directory, 'CURRENT'), 'latin1')
  const file = /^(MANIFEST-\d+)\n$/.exec(current)?.[1]
  if (file === undefined) return { file: 'CURRENT', kind: 'manifest', message: 'CURRENT: it names no MANIFEST' }
  if (!sizes.has(file)) return missing(file)
  const bytes = await readFile(join(directory, file))
  const { records, soundEnd, after } = readLog(bytes)
  const damaged = (detail: string): FileFault => ({ file, kind: 'manifest', message: `${file}: ${detail}` })
  const isTorn = soundEnd < bytes.length
  const damagedRecord = damaged(`the record at offset ${soundEnd} is damaged`)
  if (records.length === 0 || after.length > 0) return damagedRecord
  try {
    const live = liveFiles(records.map(({ payload }) => payload))
    if (isTorn && !isComplete(live, sizes)) return damagedRecord
    return { ...live, file, tornAt: isTorn ? soundEnd : undefined }
  } catch (error) {
    return isTorn ? damagedRecord : damaged(error instanceof Error ? error.message : String(error))
  }
}

function isComplete(live: LiveFiles, sizes: ReadonlyMap<string, number>): boolean {
  return hasLog(live, sizes) && [...live.tables].every(([number, { size }]) => sizes.get(tableName(number)) === size)
}

/**
 * LevelDB makes a log before a MANIFEST names it. A log of 0 means that the database was never opened, or that LevelDB's repair
 * made it.
 */
export function hasLog({ log }: LiveFiles, sizes: ReadonlyMap<string, number>): boolean {
  return log === 0 || sizes.has(logName(log))
}

export async function sizesOf(directory: string): Promise<Map<string, number>> {
  const sizes = new Map<string, number>()
  for (const file of (await readdir(directory)).sort()) {
    const found = await stat(join(directory, file)).catch(() => undefined) // The file was deleted in the meantime.
    if (found?.isFile()) sizes.set(file, found.size)
  }
  return sizes
}

export function isLiveLog(file: string, live: LiveFiles): boolean {
  const number = numberOf(file)
  return file.endsWith('.log') && (number >= live.log || number === live.previousLog)
}

export const tableName = (number: number): string => fileName(number, 'ldb')
const logName = (number: number): string => fileName(number, 'log')
export const numberOf = (file: string): number => Number.parseInt(file, 10)

function fileName(number: number, suffix: string): string {
  return `${String(number).padStart(6, '0')}.${suffix}`
}

function missing(file: string): FileFault {
  return { file, kind: 'missing', message: `${file}: it is missing` }
}

function cutTable(file: string, size: number, expected: number): FileFault {
  return { file, kind: 'table', message: `${file}: it has ${size} bytes instead of ${expected}` }
}
