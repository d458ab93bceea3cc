import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { readLog } from './log-file.js'
import { type TableFault, tableFaults } from './table-file.js'
import { type LiveFiles, liveFiles } from './version-edit.js'

/** Damage in a file, or a file that is missing. */
export interface FileFault {
  readonly file: string
  readonly kind: 'missing' | 'table' | 'log' | 'manifest'
  /** One line for people, with the file's name. */
  readonly message: string
  readonly blocks?: readonly TableFault[]
}

export interface VerifiedFiles {
  readonly faults: readonly FileFault[]
  readonly files: number
  readonly bytes: number
  /** Left out: together they are larger than `tableBytesMax`. */
  readonly isPartial: boolean
}

export interface VerifyOptions {
  /** Tables that are larger together are not read. Default: no limit. */
  readonly tableBytesMax?: number
  readonly onProgress?: (bytesDone: number, bytesAll: number) => void
}

const NOTHING: VerifiedFiles = { faults: [], files: 0, bytes: 0, isPartial: false }

/**
 * The files of a LevelDB that no process has open, against the checksums in them: LevelDB itself drops damaged records of
 * its log without a word, and reads tables without looking at theirs. A log may end in a torn record.
 */
export async function verifyFiles(directory: string, options: VerifyOptions = {}): Promise<VerifiedFiles> {
  const sizes = await sizesOf(directory)
  if (!sizes.has('CURRENT')) {
    // A database that was being made when the process died has none either, but no data.
    const data = [...sizes].find(([file, size]) => size > 0 && /\.(ldb|log)$/.test(file))
    return data === undefined ? NOTHING : { ...NOTHING, faults: [missing('CURRENT')] }
  }
  const live = await readManifest(directory, sizes)
  if ('message' in live) return { ...NOTHING, faults: [live] }
  const faults: FileFault[] = []
  const tables = [...live.tables].map(([number, size]) => ({ file: tableName(number), size }))
  const logs = [...sizes.keys()].filter((file) => isLiveLog(file, live)).map((file) => ({ file }))
  if (live.log > 0 && !logs.some(({ file }) => numberOf(file) === live.log))
    faults.push(missing(fileName(live.log, 'log')))
  for (const { file } of logs) {
    const { soundEnd, after } = readLog(await readFile(join(directory, file)))
    if (after.length > 0) faults.push(logFault(file, soundEnd, after.length))
  }
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

/** One fault a table, with all of its blocks. */
export async function verifyTable(directory: string, file: string): Promise<FileFault[]> {
  const blocks = tableFaults(await readFile(join(directory, file)))
  const [first] = blocks
  if (first === undefined) return []
  const more = blocks.length > 1 ? `, and ${blocks.length - 1} more` : ''
  const message = `${file}: the ${first.what} at offset ${first.offset} fails its checksum${more}`
  return [{ file, kind: 'table', message, blocks }]
}

/** What is live, or the fault that keeps from knowing it. */
export async function readManifest(
  directory: string,
  sizes: ReadonlyMap<string, number>,
): Promise<LiveFiles | FileFault> {
  const current = await readFile(join(directory, 'CURRENT'), 'latin1')
  const file = /^(MANIFEST-\d+)\n$/.exec(current)?.[1]
  if (file === undefined) return { file: 'CURRENT', kind: 'manifest', message: 'CURRENT names no MANIFEST' }
  if (!sizes.has(file)) return missing(file)
  const bytes = await readFile(join(directory, file))
  const { records, soundEnd } = readLog(bytes)
  const damaged = (detail: string): FileFault => ({ file, kind: 'manifest', message: `${file}: ${detail}` })
  // LevelDB takes a cut-off record for the end, and then deletes the tables that it would have named.
  if (soundEnd < bytes.length || records.length === 0) return damaged(`the record at offset ${soundEnd} is damaged`)
  try {
    return liveFiles(records.map(({ payload }) => payload))
  } catch (error) {
    return damaged(error instanceof Error ? error.message : String(error))
  }
}

export async function sizesOf(directory: string): Promise<Map<string, number>> {
  const sizes = new Map<string, number>()
  for (const file of (await readdir(directory)).sort()) {
    const found = await stat(join(directory, file)).catch(() => undefined) // Gone since.
    if (found?.isFile()) sizes.set(file, found.size)
  }
  return sizes
}

export function isLiveLog(file: string, live: LiveFiles): boolean {
  const number = numberOf(file)
  return file.endsWith('.log') && (number >= live.log || number === live.previousLog)
}

export const tableName = (number: number): string => fileName(number, 'ldb')
export const numberOf = (file: string): number => Number.parseInt(file, 10)

function fileName(number: number, suffix: string): string {
  return `${String(number).padStart(6, '0')}.${suffix}`
}

function missing(file: string): FileFault {
  return { file, kind: 'missing', message: `${file} is missing` }
}

function cutTable(file: string, size: number, expected: number): FileFault {
  return { file, kind: 'table', message: `${file} has ${size} bytes instead of ${expected}`, blocks: [] }
}

function logFault(file: string, offset: number, after: number): FileFault {
  const message = `${file}: the record at offset ${offset} is damaged, with ${after} sound ones behind it`
  return { file, kind: 'log', message }
}
