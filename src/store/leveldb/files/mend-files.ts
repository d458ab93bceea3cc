import { open, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { firstSequence, readBatches } from './batch-log.js'
import { encodeLog, readLog } from './log-file.js'
import type { LostRecords, StoredRange } from './lost-records.js'
import { mendedTable, tableFaults } from './table-file.js'
import { type FileFault, isLiveLog, numberOf, readManifest, sizesOf, tableName } from './verify-files.js'
import { type LiveFiles, type LiveTable, liveFiles } from './version-edit.js'
import { batchKeys } from './write-batch.js'

/** Suffix of files that an interrupted repair leaves. */
const TEMPORARY = '.mended'

export interface MendOptions {
  readonly keepsLater: boolean
  readonly onLost: (lost: readonly LostRecords[]) => Promise<void>
}

export interface MendedFiles {
  readonly needsRebuild: boolean
}

/**
 * Removes the damaged parts of files, so that LevelDB opens them: bad blocks of tables, and the log from its first bad record on.
 * Later log records build on lost ones, so they go too, and the database is as it was at that moment.
 */
export async function mendFiles(
  directory: string,
  faults: readonly FileFault[],
  { keepsLater, onLost }: MendOptions,
): Promise<MendedFiles> {
  const sizes = await sizesOf(directory)
  for (const file of sizes.keys()) if (file.endsWith(TEMPORARY)) await rm(join(directory, file))
  const manifest = sizes.has('CURRENT') ? await readManifest(directory, sizes) : undefined
  const isRead = manifest !== undefined && 'tables' in manifest
  const live = isRead ? { ...manifest, isWhole: true } : await remembered(directory, sizes)
  const present = [...sizes.keys()].filter((file) => file.endsWith('.ldb'))
  const missing = faults.flatMap(({ kind, file }) => (kind === 'missing' ? [file] : []))
  const missingTables = missing.filter((file) => file.endsWith('.ldb'))
  // A MANIFEST that lost its end names deleted tables, and not those that replaced them.
  const isOld = missingTables.length > 0 && present.some((file) => !live.tables.has(numberOf(file)))
  const isKnown = isRead && !isOld
  const lost: LostRecords[] = []
  if (isKnown)
    for (const file of missingTables)
      lost.push({ kind: 'range', file, range: boundsOf(live.tables.get(numberOf(file))) })
  else if (isOld || !live.isWhole)
    lost.push({ kind: 'tables', file: faults.find(({ kind }) => kind !== 'repair')?.file ?? 'MANIFEST' })
  for (const file of missing) if (file.endsWith('.log')) lost.push({ kind: 'log', file, offset: 0, keys: [] })
  const logs = [...sizes.keys()].filter((file) => isLiveLog(file, live))
  if (!isRead && logs.length === 0) lost.push({ kind: 'log', file: 'the log', offset: 0, keys: [] })
  await onLost(lost)

  let needsRebuild = !isKnown || missingTables.length > 0
  for (const file of present) {
    const table = live.tables.get(numberOf(file))
    if (isKnown && !faults.some((fault) => fault.file === file)) continue
    const { isSameSize } = await mendTable(directory, file, table, sizes.get(file) ?? 0, onLost)
    needsRebuild ||= !isSameSize
  }

  let isCut = false
  let next = firstSequence(isKnown ? live.lastSequence : Number.MAX_SAFE_INTEGER)
  for (const file of logs) {
    const bytes = await readFile(join(directory, file))
    const { records, soundEnd, after, next: nextHere } = readBatches(bytes, next)
    next = nextHere
    if (!isCut && soundEnd === bytes.length) continue
    const gone = isCut ? [...records, ...after] : after
    if (keepsLater && after.length > 0) {
      await onLost([{ kind: 'log', file, offset: soundEnd, keys: [], isLaterKept: true }])
      await replace(join(directory, file), encodeLog([...records, ...after].map(({ payload }) => payload)))
      continue
    }
    if (gone.length > 0) {
      const keys = gone.flatMap(({ payload }) => batchKeys(payload))
      await onLost([{ kind: 'log', file, offset: isCut ? 0 : soundEnd, keys }])
    }
    // LevelDB's repair ignores the log's checksums, so a torn end is removed too.
    await replace(join(directory, file), isCut ? Buffer.alloc(0) : bytes.subarray(0, soundEnd))
    isCut ||= after.length > 0
  }
  if (needsRebuild) await removeObsolete(directory, live, isKnown)
  return { needsRebuild }
}

async function mendTable(
  directory: string,
  file: string,
  table: LiveTable | undefined,
  size: number,
  onLost: (lost: readonly LostRecords[]) => Promise<void>,
): Promise<{ readonly isSameSize: boolean }> {
  const path = join(directory, file)
  const bytes = await readFile(path)
  const expected = table?.size ?? size
  const faults = tableFaults(bytes)
  // A table that an interrupted repair mended may have grown.
  if (faults.length === 0) return { isSameSize: bytes.length === expected }
  const mended = mendedTable(bytes.subarray(0, expected), expected)
  const { smallest, largest } = table ?? {}
  const ranges = mended.lost
    .map(({ gte = smallest, lte = largest }) => ({ gte, lte }))
    .filter(({ gte, lte }) => gte === undefined || lte === undefined || gte.compare(lte) <= 0)
  await onLost(ranges.map((range) => ({ kind: 'range', file, range })))
  if (mended.bytes === undefined) await rm(path)
  else await replace(path, mended.bytes)
  return { isSameSize: mended.bytes?.length === expected }
}

function boundsOf(table: LiveTable | undefined): StoredRange {
  return { gte: table?.smallest, lte: table?.largest }
}

async function remembered(
  directory: string,
  sizes: ReadonlyMap<string, number>,
): Promise<LiveFiles & { readonly isWhole: boolean }> {
  const manifest = [...sizes.keys()].filter((file) => file.startsWith('MANIFEST-')).at(-1)
  if (manifest !== undefined) {
    const bytes = await readFile(join(directory, manifest))
    const { records, soundEnd } = readLog(bytes)
    try {
      const live = liveFiles(records.map(({ payload }) => payload))
      const areThere = [...live.tables.keys()].every((number) => sizes.has(tableName(number)))
      return { ...live, isWhole: soundEnd === bytes.length && areThere }
    } catch {}
  }
  return { tables: new Map(), removed: new Set(), log: 0, previousLog: 0, lastSequence: 0, isWhole: false }
}

/** Removes replaced tables and logs, because LevelDB's repair takes in every one that it finds. */
async function removeObsolete(directory: string, live: LiveFiles, isKnown: boolean): Promise<void> {
  for (const file of (await sizesOf(directory)).keys()) {
    const number = numberOf(file)
    const isGone = isKnown ? !live.tables.has(number) : live.removed.has(number)
    if (file.endsWith('.ldb') ? isGone : file.endsWith('.log') && !isLiveLog(file, live))
      await rm(join(directory, file))
  }
}

/** Writes a new file under the old name. The old file may be hard-linked in a copy of the directory. */
async function replace(path: string, bytes: Buffer): Promise<void> {
  const temporary = `${path}${TEMPORARY}`
  await writeFile(temporary, bytes)
  const handle = await open(temporary, 'r')
  await handle.sync().finally(() => handle.close())
  await rename(temporary, path)
}
