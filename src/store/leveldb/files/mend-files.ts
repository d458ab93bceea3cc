import { open, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { firstSequence, readBatches } from './batch-log.js'
import { readLog } from './log-file.js'
import { mendedTable, type TableFault, tableFaults } from './table-file.js'
import { type FileFault, isLiveLog, numberOf, readManifest, sizesOf } from './verify-files.js'
import { type LiveFiles, liveFiles } from './version-edit.js'
import { batchKeys } from './write-batch.js'

/** What mending files took away. */
export interface MendedFiles {
  readonly lost: readonly LostRecords[]
  /** LevelDB has to make its MANIFEST again from the files that there are. */
  readonly needsRebuild: boolean
}

export type LostRecords =
  /** A block of a table: every record between two bounds, whatever it said, deletions too. */
  | {
      readonly kind: 'block'
      readonly file: string
      readonly above: Buffer | undefined
      readonly upTo: Buffer | undefined
    }
  /** What can't be told from the index. */
  | { readonly kind: 'table'; readonly file: string; readonly isWhole: boolean }
  /** The end of the log, from the first damaged record on. */
  | { readonly kind: 'log'; readonly file: string; readonly offset: number; readonly keys: readonly Buffer[] }

/**
 * Makes files whole without what is damaged in them, so that LevelDB opens them: tables without their bad blocks, the log
 * up to its first bad record. What comes later in the log builds on what is lost, and goes too: the database is as it was
 * at that moment.
 */
export async function mendFiles(directory: string, faults: readonly FileFault[]): Promise<MendedFiles> {
  const sizes = await sizesOf(directory)
  const manifest = sizes.has('CURRENT') ? await readManifest(directory, sizes) : undefined
  const isRead = manifest !== undefined && 'tables' in manifest
  const live = isRead ? manifest : await remembered(directory, sizes)
  // A MANIFEST that lost its end names files that are gone, and not those that have taken their place.
  const isKnown = isRead && faults.every(({ kind }) => kind !== 'missing')

  const tables = isKnown
    ? faults.filter(({ kind }) => kind === 'table').map(({ file }) => file)
    : [...(await sizesOf(directory)).keys()].filter((file) => file.endsWith('.ldb'))
  const lost: LostRecords[] = []
  let needsRebuild = !isKnown
  for (const { file, kind } of faults)
    if (kind === 'missing' && file.endsWith('.ldb')) lost.push({ kind: 'table', file, isWhole: true })
    else if (kind === 'missing' && file.endsWith('.log')) lost.push({ kind: 'log', file, offset: 0, keys: [] })
  for (const file of tables) {
    const expected = live.tables.get(numberOf(file)) ?? sizes.get(file) ?? 0
    const { isSameSize, lost: lostHere } = await mendTable(directory, file, expected)
    lost.push(...lostHere)
    needsRebuild ||= !isSameSize
  }

  const logs = [...sizes.keys()].filter((file) => isLiveLog(file, live))
  let isCut = false
  let next = firstSequence(isKnown ? live.lastSequence : Number.MAX_SAFE_INTEGER)
  for (const file of logs) {
    const bytes = await readFile(join(directory, file))
    const { records, soundEnd, after, next: nextHere } = readBatches(bytes, next)
    next = nextHere
    if (!isCut && soundEnd === bytes.length) continue
    const gone = isCut ? [...records, ...after] : after
    if (gone.length > 0) {
      const keys = gone.flatMap(({ payload }) => batchKeys(payload))
      lost.push({ kind: 'log', file, offset: isCut ? 0 : soundEnd, keys })
    }
    // LevelDB's repair believes the log without its checksums, so a torn end goes too.
    await replace(join(directory, file), isCut ? Buffer.alloc(0) : bytes.subarray(0, soundEnd))
    isCut ||= after.length > 0
  }
  if (needsRebuild) await removeObsolete(directory, live, isKnown)
  return { lost, needsRebuild }
}

async function mendTable(
  directory: string,
  file: string,
  expected: number,
): Promise<{ readonly isSameSize: boolean; readonly lost: LostRecords[] }> {
  const path = join(directory, file)
  const bytes = await readFile(path)
  const faults = tableFaults(bytes)
  if (faults.length === 0 && bytes.length === expected) return { isSameSize: true, lost: [] }
  const mended = mendedTable(bytes.subarray(0, expected), expected)
  if (mended === undefined) await rm(path)
  else await replace(path, mended)
  const blocks = faults.filter(({ what }) => what === 'data block')
  const isIndexed = bytes.length === expected && faults.every(({ what }) => what !== 'index block' && what !== 'footer')
  const lost = isIndexed ? blocks.map(blockOf(file)) : [{ kind: 'table', file, isWhole: mended === undefined } as const]
  return { isSameSize: mended?.length === expected, lost }
}

function blockOf(file: string): (fault: TableFault) => LostRecords {
  return ({ above, upTo }) => ({ kind: 'block', file, above, upTo })
}

/** What a MANIFEST says as far as it can be read. */
async function remembered(directory: string, sizes: ReadonlyMap<string, number>): Promise<LiveFiles> {
  const manifest = [...sizes.keys()].filter((file) => file.startsWith('MANIFEST-')).at(-1)
  if (manifest !== undefined) {
    const { records } = readLog(await readFile(join(directory, manifest)))
    try {
      return liveFiles(records.map(({ payload }) => payload))
    } catch {}
  }
  return { tables: new Map(), removed: new Set(), log: 0, previousLog: 0, lastSequence: 0 }
}

/** LevelDB's repair takes in every table and log that it finds, also those from before a compaction. */
async function removeObsolete(directory: string, live: LiveFiles, isKnown: boolean): Promise<void> {
  for (const file of (await sizesOf(directory)).keys()) {
    const number = numberOf(file)
    const isGone = isKnown ? !live.tables.has(number) : live.removed.has(number)
    if (file.endsWith('.ldb') ? isGone : file.endsWith('.log') && !isLiveLog(file, live))
      await rm(join(directory, file))
  }
}

/** A new file under the old name: the old one may have another name in a copy of the directory. */
async function replace(path: string, bytes: Buffer): Promise<void> {
  const temporary = `${path}.mended`
  await writeFile(temporary, bytes)
  const handle = await open(temporary, 'r')
  await handle.sync()
  await handle.close()
  await rename(temporary, path)
}
