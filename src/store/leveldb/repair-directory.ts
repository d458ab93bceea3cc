import { copyFile, link, mkdir, readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { ClassicLevel } from 'classic-level'
import { CorruptRecord } from '../../percolator/codec/key.js'
import { packRecord } from '../../percolator/codec/record.js'
import { type Timestamp, timestampFromMs } from '../../percolator/timestamp.js'
import { progressOf, verifiedFiles } from './check-directory.js'
import { checkRecords } from './check-records.js'
import { opened, sealedEngine } from './checksum.js'
import {
  convertFormat,
  FORMAT_VERSION,
  formatOp,
  META_FORMAT,
  META_MARK,
  META_SAFE_POINT,
  readFormat,
  readMetaNumber,
} from './data-directory.js'
import { DataDirectoryError } from './data-directory-error.js'
import { type Engine, type EngineOp, openLevelDb, pagesOf } from './engine.js'
import { type LostRecords, mendFiles } from './files/mend-files.js'
import { verifyFiles } from './files/verify-files.js'
import { CF_LOCK, CF_WRITE } from './keyspace.js'
import { placeName, recordName } from './record-name.js'

const OPS_AT_A_TIME = 1000
const EVERYTHING = { gte: Buffer.alloc(0), lt: Buffer.alloc(256, 0xff) }
/** The oracle's mark is put this far ahead of the clock. */
const MARK_AHEAD_MS = 3000

export interface RepairOptions {
  /** What is going to be done, what was done and what is lost; a line each. */
  readonly say: (line: string) => void
  /** Works on a copy, which goes afterwards. */
  readonly isDryRun: boolean
  /** Keeps the directory as it was beside it. */
  readonly keepsCopy: boolean
  readonly onProgress?: (line: string) => void
  /** Unix milliseconds. */
  readonly now?: () => number
}

export interface Repaired {
  readonly isSound: boolean
  /** Problems of files and records that there were. */
  readonly problems: number
  /** Records that clients wrote and that are gone; ranges of unknown length count as one. */
  readonly losses: number
}

/**
 * Makes a damaged database one that is sound and can be served from, and says what that costs. Nothing is changed where
 * nothing is damaged.
 * @throws DataDirectoryError where there is no database, or it is in use.
 */
export async function repairDirectory(directory: string, options: RepairOptions): Promise<Repaired> {
  const { say, isDryRun, keepsCopy, now = Date.now } = options
  const { faults } = await verifiedFiles(directory, options.onProgress)
  for (const { message } of faults) say(`damaged: ${message}`)
  const stamp = new Date(now()).toISOString().replaceAll(/[-:]|\..*/g, '')
  const copy = `${directory.replace(/\/+$/, '')}.${isDryRun ? 'dry-run' : 'before-repair'}-${stamp}`
  const work = isDryRun ? copy : directory
  if (isDryRun || keepsCopy) {
    say(isDryRun ? `working on a copy, ${copy}` : `keeping the database as it is in ${copy}`)
    await copyDirectory(directory, copy)
  }
  try {
    const repaired = await repairInPlace(work, faults, options)
    if (!isDryRun && keepsCopy && repaired.problems === 0) {
      say('nothing was damaged: the copy goes')
      await rm(copy, { recursive: true })
    }
    return repaired
  } finally {
    if (isDryRun) await rm(copy, { recursive: true, force: true })
  }
}

async function repairInPlace(
  directory: string,
  faults: Parameters<typeof mendFiles>[1],
  { say, onProgress, now = Date.now }: RepairOptions,
): Promise<Repaired> {
  let lost: readonly LostRecords[] = []
  let needsRebuild = false
  if (faults.length > 0) {
    say('mending files: bad blocks are left out of their tables, the log ends before its first bad record')
    const mended = await mendFiles(directory, faults)
    lost = mended.lost
    needsRebuild = mended.needsRebuild
    for (const one of lost) for (const line of linesOf(one)) say(line)
    if (needsRebuild) {
      say('having LevelDB make its MANIFEST again from the tables that there are: what was deleted may be back')
      await remakeManifest(directory)
      await rm(join(directory, 'lost'), { recursive: true, force: true })
    }
  }
  const engine = await openLevelDb(directory)
  let records: RepairedRecords
  try {
    // LevelDB's repair leaves all tables on one level, where look-ups go by their age and not by that of the records.
    if (needsRebuild) await engine.compactRange(EVERYTHING.gte, EVERYTHING.lt)
    records = await repairRecords(engine, directory, {
      lost,
      needsRebuild,
      say,
      onProgress,
      present: timestampFromMs(now() + MARK_AHEAD_MS),
    })
  } finally {
    await engine.close()
  }
  const after = await verifyFiles(directory)
  for (const { message } of after.faults) say(`still damaged: ${message}`)
  return {
    isSound: after.faults.length === 0 && records.remaining === 0,
    problems: faults.length + records.problems,
    losses: lost.length + records.losses,
  }
}

interface RepairedRecords {
  readonly problems: number
  readonly losses: number
  readonly remaining: number
}

async function repairRecords(
  engine: Engine,
  directory: string,
  {
    lost,
    needsRebuild,
    say,
    onProgress,
    present,
  }: {
    readonly lost: readonly LostRecords[]
    readonly needsRebuild: boolean
    readonly say: (line: string) => void
    readonly onProgress: RepairOptions['onProgress']
    readonly present: Timestamp
  },
): Promise<RepairedRecords> {
  let problems = await repairFormat(engine, directory, say, lost.length > 0)
  const sealed = sealedEngine(engine)
  const areFilesDamaged = lost.length > 0 || needsRebuild

  const mark = await numberOr(sealed, META_MARK)
  if (mark === undefined || areFilesDamaged) {
    if (mark === undefined) problems++
    const raised = Math.max(mark ?? 0, present)
    await sealed.write([{ type: 'put', key: META_MARK, value: packRecord([raised]) }], true)
    say(`the oracle's mark is ${raised}: no timestamp is handed out twice`)
  }
  const safePoint = await numberOr(sealed, META_SAFE_POINT)
  if (safePoint === undefined || lost.some((one) => mayHold(one, META_SAFE_POINT))) {
    if (safePoint === undefined) problems++
    await sealed.write([{ type: 'put', key: META_SAFE_POINT, value: packRecord([present]) }], true)
    say(`the safe point may be lost, and is ${present} now: the past can't be read`)
  }

  let losses = 0
  let ops: EngineOp[] = []
  const write = async (): Promise<void> => {
    await sealed.write(ops.splice(0), true)
  }
  const checked = await checkRecords(engine, {
    async onProblem(problem) {
      say(`${problem.isLoss ? 'lost' : 'mended'}: ${problem.message}`)
      if (problem.isLoss) losses++
      ops.push(...problem.ops)
      if (ops.length >= OPS_AT_A_TIME) await write()
    },
    onProgress: progressOf(onProgress),
  })
  await write()
  ops = []
  problems += checked.problems
  if (problems === 0 && !areFilesDamaged) return { problems, losses, remaining: 0 }
  const again = await checkRecords(engine, {
    onProblem: ({ message }) => say(`still damaged: ${message}`),
    onProgress: progressOf(onProgress),
  })
  return { problems, losses, remaining: again.problems }
}

/** @returns problems: 0 or 1. */
async function repairFormat(
  engine: Engine,
  directory: string,
  say: (line: string) => void,
  mayBeEmpty: boolean,
): Promise<number> {
  try {
    if ((await readFormat(engine)) > 0) {
      await convertFormat(engine, directory)
      return 0
    }
  } catch (error) {
    if (!(error instanceof CorruptRecord)) throw error
  }
  const restored = async (): Promise<number> => {
    await engine.write([formatOp(FORMAT_VERSION)], true)
    say('mended: the format record')
    return 1
  }
  // Seals are PerKV's, and of this format.
  let isEmpty = true
  for await (const page of pagesOf(engine, EVERYTHING, OPS_AT_A_TIME)) {
    isEmpty &&= page.every(([key]) => key.equals(META_FORMAT))
    if (page.some(([key, value]) => !key.equals(META_FORMAT) && opened(key, value) !== undefined)) return restored()
  }
  if (isEmpty && mayBeEmpty) return restored()
  throw new DataDirectoryError(`nothing in ${directory} is a record of PerKV's of format ${FORMAT_VERSION}`)
}

/** 0: there is none. Undefined: it is damaged. */
async function numberOr(sealed: Engine, key: Buffer): Promise<number | undefined> {
  try {
    return await readMetaNumber(sealed, key)
  } catch (error) {
    if (error instanceof CorruptRecord) return undefined
    throw error
  }
}

function mayHold(lost: LostRecords, stored: Buffer): boolean {
  if (lost.kind === 'log') return false // All that was written since went with it.
  if (lost.kind === 'table') return true
  const { above, upTo } = lost
  return (above === undefined || above.compare(stored) <= 0) && (upTo === undefined || upTo.compare(stored) >= 0)
}

function linesOf(lost: LostRecords): string[] {
  switch (lost.kind) {
    case 'block': {
      const from = lost.above === undefined ? 'the first record' : placeName(lost.above)
      const to = lost.upTo === undefined ? 'the last record' : placeName(lost.upTo)
      return [`lost: ${lost.file}: what was written and deleted from ${from} to ${to}`]
    }
    case 'table':
      return [`lost: ${lost.file}: ${lost.isWhole ? 'all' : 'maybe a part'} of its records`]
    case 'log':
      return [
        `lost: ${lost.file}: what was written from offset ${lost.offset} on`,
        ...lost.keys
          .filter(([prefix]) => prefix === CF_WRITE || prefix === CF_LOCK)
          .map((key) => `lost: ${recordName(key)}`),
      ]
  }
}

/** Tables are never written to again, so a second name for them is a copy; the rest is copied. */
async function copyDirectory(from: string, to: string): Promise<void> {
  await mkdir(to)
  for (const file of await readdir(from)) {
    if (!(await stat(join(from, file))).isFile()) continue
    if (file.endsWith('.ldb'))
      await link(join(from, file), join(to, file)).catch(() => copyFile(join(from, file), join(to, file)))
    else await copyFile(join(from, file), join(to, file))
  }
}

/** A directory in which no table and no log is left becomes a new database. */
async function remakeManifest(directory: string): Promise<void> {
  const files = await readdir(directory)
  if (files.some((file) => /\.(ldb|log)$/.test(file))) return ClassicLevel.repair(directory)
  for (const file of files) if (/^(CURRENT|MANIFEST-)/.test(file)) await rm(join(directory, file))
}
