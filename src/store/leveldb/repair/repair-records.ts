import { keyText } from '../../../bytes/key-text.js'
import { printKey } from '../../../errors/print-key.js'
import { CorruptRecord, decodeKey, decodeKeyTs } from '../../../percolator/codec/key.js'
import { decodeLock } from '../../../percolator/codec/lock.js'
import { packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import type { Lock } from '../../../percolator/lock.js'
import { sameKey } from '../../../percolator/row.js'
import { physicalMs, type Timestamp, timestampFromMs } from '../../../timestamp.js'
import { DataDirectoryError } from '../data-directory-error.js'
import { convertFormat, FORMAT_VERSION, formatOp, readFormat } from '../directory/data-directory.js'
import { hasUnmoved, moveSystemRecords } from '../directory/move-system-records.js'
import { opened, sealedEngine } from '../engine/checksum.js'
import { type Engine, type EngineOp, pagesOf } from '../engine/engine.js'
import { readMetaNumber } from '../engine/meta-number.js'
import type { LostRecords, StoredRange } from '../files/lost-records.js'
import { progressOf } from '../integrity/check-directory.js'
import { checkExpiries } from '../integrity/check-expiries.js'
import { type Finding, MARK_MAX } from '../integrity/check-key.js'
import { checkLog } from '../integrity/check-log.js'
import { checkRecords } from '../integrity/check-records.js'
import { DamagedRanges } from '../integrity/damaged-ranges.js'
import {
  CF_LOCK,
  CF_LOG,
  CF_SYSTEM,
  CF_WRITE,
  familyRange,
  lockKey,
  META_FORMAT,
  META_LOG_READ,
  META_LOG_START,
  META_MARK,
  META_SAFE_POINT,
  systemRange,
  versionRange,
  writeKey,
} from '../records/keyspace.js'
import { recordName } from '../records/record-name.js'
import { holds, type Loss, lossesOf, lossOfKey, lossOfLog, lossOfSystem } from './loss.js'
import { NewestTimestamp, pinsIn } from './newest-timestamp.js'
import { RegisteredObservers, registeredObservers } from './registered-observers.js'

const OPS_AT_A_TIME = 1000
/**
 * Limit on checks after the first repair. A check that finds something is followed by another; findings of the last one remain.
 */
const PASSES_MAX = 10
/** A mark this far above all data and the clock is reported as suspicious. */
const WILD = timestampFromMs(24 * 60 * 60 * 1000)
const EVERYTHING = { gte: Buffer.alloc(0), lt: Buffer.alloc(256, 0xff) }

export interface RepairedRecords {
  readonly findings: number
  readonly restored: number
  readonly removed: number
  readonly losses: number
  readonly remaining: number
}

export interface RecordsRepairOptions {
  readonly say: (line: string) => void
  readonly onLoss?: ((loss: Loss) => void) | undefined
  readonly onProgress?: ((line: string) => void) | undefined
  readonly lost: readonly LostRecords[]
  /** Files are damaged, so the mark on disk may be an old one. */
  readonly areFilesDamaged: boolean
  readonly resetsMark: boolean
  readonly present: Timestamp
}

export async function repairRecords(
  engine: Engine,
  directory: string,
  options: RecordsRepairOptions,
): Promise<RepairedRecords> {
  return new RecordsRepair(engine, options).run(directory)
}

class RecordsRepair {
  readonly #engine: Engine
  readonly #sealed: Engine
  readonly #options: RecordsRepairOptions
  readonly #damaged: DamagedRanges
  /** User keys that lost records, as far as known. */
  readonly #lostKeys = new Set<string>()
  #observers = new RegisteredObservers(new Map(), true)
  #findings = 0
  readonly #counts = { restored: 0, removed: 0, lost: 0 }

  constructor(engine: Engine, options: RecordsRepairOptions) {
    this.#engine = engine
    this.#sealed = sealedEngine(engine)
    this.#options = options
    this.#damaged = new DamagedRanges(options.lost.flatMap(rangesOf))
  }

  async run(directory: string): Promise<RepairedRecords> {
    const { lost, resetsMark } = this.#options
    const format = await readFormat(this.#engine).catch(() => FORMAT_VERSION) // Read again below, where it is mended.
    const isConverted = format === FORMAT_VERSION && !(await hasUnmoved(this.#engine))
    const { gte, lt } = systemRange('observer/')
    this.#observers = await registeredObservers(this.#engine, !this.#damaged.meets(gte, lt))
    for (const one of lost) {
      const losses = lossesOf(one, this.#damaged, isConverted, this.#observers)
      for (const loss of losses) this.#lose(loss)
      if (losses.length === 0) this.#done('restored', `${one.file}: its lost records have copies elsewhere`)
    }
    if (await repairFormat(this.#engine, directory, lost.length > 0)) {
      this.#findings++
      this.#done('restored', 'the format record')
    }
    // Read before damaged records are removed.
    const mark = await numberOr(this.#sealed, META_MARK)
    const [, ...extraFields] = mark === undefined || resetsMark ? [] : await fieldsOf(this.#sealed, META_MARK)
    const safePoint = await numberOr(this.#sealed, META_SAFE_POINT)
    const logStart = await numberOr(this.#sealed, META_LOG_START)
    const logRead = await numberOr(this.#sealed, META_LOG_READ)
    const isMarkInDoubt = mark === undefined || this.#options.areFilesDamaged
    const newest = new NewestTimestamp(Math.max(mark ?? 0, isMarkInDoubt ? this.#options.present : 0))
    const isMarkLow = await this.#mendRecords(newest)
    await newest.noteRestore(this.#sealed)
    await newest.noteAcknowledged(this.#sealed)
    await newest.noteLog(this.#engine)
    const newestData = newest.ts
    if (!resetsMark) await newest.noteMeta(this.#sealed) // A wrong clock's timestamps go down with the mark.
    const inForce = await this.#mendMark(mark, extraFields, newest.ts, isMarkLow)
    this.#hintAtClock(inForce, newestData)
    if (resetsMark) await this.#dropPins(inForce)
    await this.#mendSafePoint(safePoint, inForce)
    await this.#mendLogStart(logStart, inForce)
    await this.#mendLogRead(logRead)
    await this.#mend((onFinding) => checkLog(this.#engine, onFinding))
    await this.#mend((onFinding) => checkExpiries(this.#engine, onFinding))
    const isSound = this.#findings === 0 && !this.#options.areFilesDamaged
    const remaining = isSound ? 0 : await this.#mendWhatMendingShows()
    await this.#reportUndecidableTransactions()
    const { restored, removed, lost: losses } = this.#counts
    return { findings: this.#findings, restored, removed, losses, remaining }
  }

  /**
   * Repeats the check until there is nothing to mend: when a damaged record is gone, an older one counts again, with all that it
   * needs.
   * @returns the number of problems that remain.
   */
  async #mendWhatMendingShows(): Promise<number> {
    const { onProgress, say } = this.#options
    for (let passes = 1; ; passes++) {
      let count = 0
      await this.#mend(async (onFinding) => {
        const onEach = async (finding: Finding): Promise<void> => {
          count++
          if (passes < PASSES_MAX) await onFinding(finding)
          else say(`still damaged: ${finding.message}`)
        }
        await checkRecords(this.#engine, { onFinding: onEach, onProgress: progressOf(onProgress) })
      })
      if (count === 0 || passes === PASSES_MAX) return count
    }
  }

  #done(what: 'restored' | 'removed' | 'lost', message: string): void {
    this.#counts[what]++
    this.#options.say(`${what}: ${message}`)
  }

  #lose(loss: Loss): void {
    this.#done('lost', loss.message)
    this.#options.onLoss?.(loss)
  }

  /** @returns whether a record is above the mark that should not be. */
  async #mendRecords(newest: NewestTimestamp): Promise<boolean> {
    let isMarkLow = false
    let ops: EngineOp[] = []
    const checked = await checkRecords(this.#engine, {
      damaged: this.#damaged,
      hasDerived: false,
      onKey: (records) => newest.note(records),
      onFinding: async (finding) => {
        const isAbove = finding.kind === 'above_mark' && (finding.ts ?? 0) <= MARK_MAX
        if (isAbove || finding.kind === 'bad_meta') {
          isMarkLow = true
          return
        }
        this.#report(finding)
        ops.push(...finding.ops)
        if (ops.length >= OPS_AT_A_TIME) await this.#sealed.write(ops.splice(0), true)
      },
      onProgress: progressOf(this.#options.onProgress),
    })
    await this.#sealed.write(ops, true)
    ops = []
    this.#findings += checked.findings
    return isMarkLow
  }

  #report({ kind, isLoss, ops, message, key, ts = 0 }: Finding): void {
    const isKnown = kind === 'lost_version' && key !== undefined && this.#mayHaveLostWrite(key, ts)
    if (isLoss && !isKnown) {
      if (key !== undefined) this.#lostKeys.add(keyText(key))
      const [op] = ops
      if (key !== undefined) this.#lose(lossOfKey(key, message))
      else if (op?.key[0] === CF_SYSTEM) this.#lose(lossOfSystem(op.key, message, this.#observers))
      else this.#lose({ message, of: 'meta' })
    } else if (kind === 'damaged_record' && ops[0]?.key[0] === CF_LOG) this.#lose(lossOfLog(ops[0].key, message))
    else this.#done(ops.some(({ type }) => type === 'put') ? 'restored' : 'removed', message)
  }

  /** @param extraFields further fields of the mark's record. @returns the oracle's mark, above every timestamp on disk. */
  async #mendMark(
    mark: Timestamp | undefined,
    extraFields: readonly unknown[],
    newest: Timestamp,
    isMarkLow: boolean,
  ): Promise<Timestamp> {
    const { areFilesDamaged, resetsMark, present } = this.#options
    const byClock = areFilesDamaged || resetsMark || !mark ? present : 0
    const raised = Math.max(resetsMark ? 0 : (mark ?? 0), byClock, newest + 1)
    const inForce = mark === undefined || areFilesDamaged || isMarkLow || resetsMark ? raised : mark
    if (inForce !== mark) {
      if (resetsMark) this.#findings++
      await this.#sealed.write([{ type: 'put', key: META_MARK, value: packRecord([inForce, ...extraFields]) }], true)
      this.#done('restored', `the oracle's mark: it is ${dated(inForce)} now, above every timestamp in the database`)
    }
    return inForce
  }

  #hintAtClock(mark: Timestamp, newest: Timestamp): void {
    const { resetsMark, present, say } = this.#options
    if (mark > present + WILD && resetsMark)
      say(
        `the mark is far ahead of the clock still: there are data of ${dated(newest)}; only dump and load make them younger`,
      )
    else if (mark > Math.max(present, newest) + WILD)
      say(
        `the mark is ${dated(mark)}, far above the clock and all data: --reset-mark puts it right if a wrong clock wrote it`,
      )
  }

  /** Removes pins above the mark: their snapshots do not exist yet. */
  async #dropPins(mark: Timestamp): Promise<void> {
    for (const { stored, ts } of await pinsIn(this.#sealed)) {
      if (ts <= mark) continue
      await this.#sealed.write([{ type: 'del', key: stored }], true)
      this.#lose({ message: `${recordName(stored)}: a snapshot at ${dated(ts)}, above the mark`, of: 'meta' })
    }
  }

  /** @param safePoint undefined when its record is damaged. */
  async #mendSafePoint(safePoint: Timestamp | undefined, mark: Timestamp): Promise<void> {
    const isLost = safePoint === undefined || this.#options.lost.some((one) => mayHold(one, META_SAFE_POINT))
    if (!isLost && safePoint <= mark) return
    this.#findings++
    await this.#sealed.write([{ type: 'put', key: META_SAFE_POINT, value: packRecord([mark]) }], true)
    const moved = `the safe point is ${dated(mark)} now`
    // A collection up to a safe point in the future has left only the newest version of each key.
    if (!isLost) this.#done('restored', `${moved}: it was ${dated(safePoint)}, above the mark`)
    else this.#lose({ message: `reads of the past: ${moved}, because the one in force may be lost`, of: 'past' })
  }

  /**
   * If the log's beginning may be lost, feeds begin at the mark.
   * @param start undefined when its record is damaged.
   */
  async #mendLogStart(start: Timestamp | undefined, mark: Timestamp): Promise<void> {
    const isLost = start === undefined || this.#options.lost.some((one) => mayHold(one, META_LOG_START))
    if (!isLost && start <= mark) return
    this.#findings++
    await this.#sealed.write([{ type: 'put', key: META_LOG_START, value: packRecord([mark]) }], true)
    const moved = `the log of changes begins at ${dated(mark)} now`
    if (!isLost) this.#done('restored', `${moved}: it was ${dated(start)}, above the mark`)
    else this.#lose({ message: `changes of the past: ${moved}, because its beginning may be lost`, of: 'log' })
  }

  /**
   * If the record that resolved_ts was used may be lost, it is written again.
   * @param read 0 when there is no record, undefined when it is damaged.
   */
  async #mendLogRead(read: number | undefined): Promise<void> {
    const mayBeLost = read === 0 && this.#options.lost.some((one) => mayHold(one, META_LOG_READ))
    if (read !== undefined && !mayBeLost) return
    this.#findings++
    await this.#sealed.write([{ type: 'put', key: META_LOG_READ, value: packRecord([1]) }], true)
    this.#done('restored', 'the record that feeds have been read')
  }

  /** Makes records agree with CF_WRITE, which is mended already. */
  async #mend(check: (onFinding: (finding: Finding) => Promise<void>) => Promise<unknown>): Promise<void> {
    const ops: EngineOp[] = []
    await check(async (finding) => {
      this.#findings++
      this.#report(finding)
      ops.push(...finding.ops)
      if (ops.length >= OPS_AT_A_TIME) await this.#sealed.write(ops.splice(0), true)
    })
    await this.#sealed.write(ops, true)
  }

  /**
   * A lock's transaction is decided by its primary, and under async commit by all its keys. When a record of one of these is
   * lost, the other keys are resolved as if it had never existed, so they are reported too.
   */
  async #reportUndecidableTransactions(): Promise<void> {
    if (this.#damaged.isEmpty && this.#lostKeys.size === 0) return
    for await (const page of pagesOf(this.#sealed, familyRange(CF_LOCK), OPS_AT_A_TIME))
      for (const [stored, bytes] of page) {
        const key = decodeKey(stored)
        const lock = decodeLock(bytes)
        for (const other of [lock.primary, ...lock.secondaries]) {
          if (sameKey(other, key) || !this.#mayHaveLost(other) || (await this.#hasRecord(other, lock))) continue
          const message = `maybe the end of the transaction at ${lock.startTs}, which holds a lock of ${printKey(key)}: its records of ${printKey(other)} may be lost`
          for (const undecidable of [key, ...lock.secondaries])
            this.#lose(lossOfKey(undecidable, `${printKey(undecidable)}: ${message}`))
          break
        }
      }
  }

  #mayHaveLostWrite(key: Uint8Array, commitTs: Timestamp): boolean {
    return this.#lostKeys.has(keyText(key)) || this.#damaged.meets(writeKey(key, commitTs))
  }

  #mayHaveLost(key: Uint8Array): boolean {
    const { gte, lt } = versionRange(CF_WRITE, key)
    return this.#lostKeys.has(keyText(key)) || this.#damaged.meets(lockKey(key)) || this.#damaged.meets(gte, lt)
  }

  async #hasRecord(key: Uint8Array, { startTs }: Lock): Promise<boolean> {
    const lock = await this.#sealed.get(lockKey(key))
    if (lock !== undefined && decodeLock(lock).startTs === startTs) return true
    const sinceStart = { ...versionRange(CF_WRITE, key), lt: Buffer.concat([writeKey(key, startTs), Buffer.of(0)]) }
    for await (const page of pagesOf(this.#sealed, sinceStart, OPS_AT_A_TIME))
      for (const [stored, bytes] of page) if (decodeWrite(bytes, decodeKeyTs(stored)).startTs === startTs) return true
    return false
  }
}

function rangesOf(lost: LostRecords): readonly StoredRange[] {
  if (lost.kind === 'range') return [lost.range]
  return lost.kind === 'tables' ? [{}] : [] // The log loses whole transactions, so the rest is consistent.
}

async function fieldsOf(sealed: Engine, key: Buffer): Promise<readonly unknown[]> {
  const bytes = await sealed.get(key)
  return bytes === undefined ? [] : unpackRecord(bytes, 'meta', 1)
}

function mayHold(lost: LostRecords, stored: Buffer): boolean {
  return lost.kind === 'range' && holds(lost.range, stored)
}

/** @returns whether the record was damaged or missing. */
async function repairFormat(engine: Engine, directory: string, mayBeEmpty: boolean): Promise<boolean> {
  try {
    if ((await readFormat(engine)) > 0) {
      await convertFormat(engine, directory)
      return false
    }
  } catch (error) {
    if (!(error instanceof CorruptRecord)) throw error
  }
  const restored = async (): Promise<true> => {
    await engine.write([formatOp(FORMAT_VERSION)], true)
    await moveSystemRecords(engine)
    return true
  }
  // A seal shows that the record is PerKV's, and of this format or of format 3.
  let isEmpty = true
  for await (const page of pagesOf(engine, EVERYTHING, OPS_AT_A_TIME)) {
    isEmpty &&= page.every(([key]) => key.equals(META_FORMAT))
    if (page.some(([key, value]) => !key.equals(META_FORMAT) && opened(key, value) !== undefined)) return restored()
  }
  if (isEmpty && mayBeEmpty) return restored()
  throw new DataDirectoryError(`${directory} has no record of PerKV's format ${FORMAT_VERSION}`)
}

/** @returns 0 when there is no record; undefined when it is damaged. */
async function numberOr(sealed: Engine, key: Buffer): Promise<number | undefined> {
  try {
    return await readMetaNumber(sealed, key)
  } catch (error) {
    if (error instanceof CorruptRecord) return undefined
    throw error
  }
}

function dated(ts: Timestamp): string {
  return `${ts} (${new Date(physicalMs(ts)).toISOString()})`
}
