import { keyText } from '../../../bytes/key-text.js'
import { decodeChanges, encodeChanges } from '../../../changes/rules/codec/change-log.js'
import { printKey } from '../../../errors/print-key.js'
import { compareChanges, type KeyChange, type LoggedChange, type RangeChange } from '../../../percolator/change.js'
import { CorruptRecord, decodeKey, decodeKeyTs } from '../../../percolator/codec/key.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import { isData } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { opened, sealedEngine } from '../engine/checksum.js'
import { type Engine, type EngineOp, pagesOf } from '../engine/engine.js'
import { readMetaNumber } from '../engine/meta-number.js'
import { crc32c } from '../files/crc32c.js'
import {
  CF_LOG,
  CF_WRITE,
  firstCommitTs,
  keyRange,
  logKey,
  META_LOG_START,
  META_RESTORE,
  META_SAFE_POINT,
  newestKey,
  writeKey,
} from '../records/keyspace.js'
import { decodeNewest } from '../records/newest-record.js'
import { recordName } from '../records/record-name.js'
import { RECORD_SPAN } from '../rows/change-records.js'
import type { Finding } from './check-key.js'
import { RemovedRanges } from './removed-ranges.js'

const LOG = { gte: Buffer.of(CF_LOG), lt: Buffer.of(CF_LOG + 1) }
/** A record of the log has up to 64 KiB. */
const LOG_RECORDS_AT_A_TIME = 64
const RECORDS_AT_A_TIME = 1000
const CHANGES_IN_MEMORY = 200_000

export interface CheckedLog {
  readonly records: number
  readonly bytes: number
}

/**
 * Checks that the log of changes and the Puts and Deletes of CF_WRITE name each other, above the bound of the log. A change that
 * a delete_range removed, or that another transaction with its commit_ts overwrote, leaves nothing in CF_WRITE.
 *
 * A sound database takes two walks over the log and one over CF_WRITE: every change is looked up, and numbers and checksums of
 * both sides then show that nothing is missing.
 * @param engine without seals. @param inMemory changes held in memory to find missing ones.
 */
export async function checkLog(
  engine: Engine,
  onFinding: (finding: Finding) => Promise<void> | void,
  inMemory = CHANGES_IN_MEMORY,
): Promise<CheckedLog> {
  const check = new LogCheck(engine, onFinding, inMemory)
  await check.run()
  return check.counted
}

export async function* removalsIn(engine: Engine): AsyncGenerator<RangeChange, void> {
  for await (const page of pagesOf(engine, LOG, LOG_RECORDS_AT_A_TIME))
    for (const [stored, sealed] of page)
      for (const change of soundChanges(stored, sealed)) if (change.type === 'delete_range') yield change
}

class LogCheck {
  readonly #engine: Engine
  readonly #onFinding: (finding: Finding) => Promise<void> | void
  readonly #inMemory: number
  readonly counted = { records: 0, bytes: 0 }
  #bound: Timestamp = 0
  readonly #logged = new Fingerprint()

  constructor(engine: Engine, onFinding: (finding: Finding) => Promise<void> | void, inMemory: number) {
    this.#engine = engine
    this.#inMemory = inMemory
    this.#onFinding = onFinding
  }

  async run(): Promise<void> {
    this.#bound = await this.#boundOf()
    const removed = new RemovedRanges(await this.#checkRecords())
    await this.#checkVersions(removed)
    const written = new Fingerprint()
    for await (const change of this.#written()) written.add(change)
    if (!written.equals(this.#logged)) await this.#findMissing(written.count)
  }

  /** A restore brings pairs that are in no log. While it is incomplete, the bound is unknown. */
  async #boundOf(): Promise<Timestamp> {
    if ((await this.#engine.get(META_RESTORE)) !== undefined) return Number.MAX_SAFE_INTEGER
    const sealed = sealedEngine(this.#engine)
    try {
      return Math.max(await readMetaNumber(sealed, META_SAFE_POINT), await readMetaNumber(sealed, META_LOG_START))
    } catch {
      return Number.MAX_SAFE_INTEGER // A damaged record, which has its own finding.
    }
  }

  async *#records(): AsyncGenerator<readonly { readonly stored: Buffer; readonly sealed: Buffer }[], void> {
    for await (const page of pagesOf(this.#engine, LOG, LOG_RECORDS_AT_A_TIME))
      yield page.map(([stored, sealed]) => ({ stored, sealed }))
  }

  async *#written(): AsyncGenerator<KeyChange, void> {
    for await (const page of pagesOf(this.#engine, keyRange(CF_WRITE), RECORDS_AT_A_TIME))
      for (const [stored, sealed] of page) {
        const change = changeIn(stored, sealed)
        if (change !== undefined && change.commitTs > this.#bound) yield change
      }
  }

  async #checkRecords(): Promise<RangeChange[]> {
    const removals: RangeChange[] = []
    for await (const page of this.#records())
      for (const { stored, sealed } of page) {
        this.counted.records++
        this.counted.bytes += stored.length + sealed.length
        const changes = changesIn(stored, sealed)
        if (typeof changes !== 'string')
          for (const change of changes) {
            if (change.type === 'delete_range') removals.push(change)
          }
        else
          await this.#onFinding({
            kind: 'damaged_record',
            message: `${recordName(stored)} ${changes}`,
            isLoss: false,
            ops: [{ type: 'del', key: stored }],
          })
      }
    return removals
  }

  /** Every change has its record in CF_WRITE, or is known to have lost it. */
  async #checkVersions(removed: RemovedRanges): Promise<void> {
    for await (const page of this.#records()) {
      const records = page.map(({ stored, sealed }) => ({ stored, changes: soundChanges(stored, sealed) }))
      const asked = records.flatMap(({ changes }) => changes.filter(isOfKey)).filter((each) => this.#isAbove(each))
      const found = await this.#engine.getMany(asked.map(({ key, commitTs }) => writeKey(key, commitTs)))
      const lost = new Set<LoggedChange>()
      for (const [i, change] of asked.entries()) {
        const sealed = found[i]
        if (sealed === undefined) {
          if (!removed.has(change) && !(await this.#hasCopy(change))) lost.add(change)
        } else if (isOf(change, changeIn(writeKey(change.key, change.commitTs), sealed))) this.#logged.add(change)
      }
      if (lost.size > 0) for (const { stored, changes } of records) await this.#reportLost(stored, changes, lost)
    }
  }

  /** True when CF_NEWEST has the record, which will be restored from there. */
  async #hasCopy({ key, commitTs, startTs }: KeyChange): Promise<boolean> {
    const stored = newestKey(key)
    const sealed = await this.#engine.get(stored)
    try {
      const newest = sealed && opened(stored, sealed)
      const copy = newest && decodeNewest(newest)
      return copy?.commitTs === commitTs && copy.startTs === startTs
    } catch (error) {
      if (error instanceof CorruptRecord) return false
      throw error
    }
  }

  async #reportLost(stored: Buffer, changes: readonly LoggedChange[], lost: ReadonlySet<LoggedChange>): Promise<void> {
    const kept = changes.filter((change) => !lost.has(change))
    if (kept.length === changes.length) return
    let ops: EngineOp[] = [
      kept.length === 0 ? { type: 'del', key: stored } : { type: 'put', key: stored, value: encodeChanges(kept) },
    ]
    for (const { key, type, commitTs } of changes.filter((change) => lost.has(change))) {
      const message = `the ${type} record of ${printKey(key)} at ${commitTs} is gone, and its change is not`
      await this.#onFinding({ kind: 'lost_version', key, ts: commitTs, message, isLoss: true, ops })
      ops = [] // The operations of the first finding rewrite the whole record.
    }
  }

  /** Works in parts of the keys, each of which fits into memory. */
  async #findMissing(written: number): Promise<void> {
    const parts = Math.ceil(Math.max(1, this.#logged.count, written) / this.#inMemory)
    for (let part = 0; part < parts; part++) {
      const isInPart = ({ key }: LoggedChange): boolean => parts === 1 || crc32c(key) % parts === part
      const logged = new Set<string>()
      for await (const page of this.#records())
        for (const { stored, sealed } of page)
          for (const change of soundChanges(stored, sealed))
            if (this.#isAbove(change) && isInPart(change)) logged.add(changeName(change))
      for await (const change of this.#written()) {
        if (!isInPart(change) || logged.has(changeName(change))) continue
        const { type, key, commitTs } = change
        const message = `the change of the ${type} record of ${printKey(key)} at ${commitTs} is missing`
        const ops: EngineOp[] = [{ type: 'put', key: logKey(change), value: encodeChanges([change]) }]
        await this.#onFinding({ kind: 'missing_change', key, ts: commitTs, message, isLoss: false, ops })
      }
    }
  }

  #isAbove({ commitTs }: LoggedChange): boolean {
    return commitTs > this.#bound
  }
}

/** Number and checksum of changes, independent of their order. */
class Fingerprint {
  count = 0
  #sum = 0
  #xor = 0

  add(change: KeyChange): void {
    const crc = crc32c(encodeChanges([change]))
    this.count++
    this.#sum = (this.#sum + crc) >>> 0
    this.#xor = (this.#xor ^ crc) >>> 0
  }

  equals(other: Fingerprint): boolean {
    return this.count === other.count && this.#sum === other.#sum && this.#xor === other.#xor
  }
}

const isOfKey = (change: LoggedChange): change is KeyChange => change.type !== 'delete_range'

const changeName = ({ type, key, commitTs, startTs }: LoggedChange): string =>
  `${type} ${commitTs} ${startTs} ${keyText(key)}`

function isOf(change: KeyChange, written: KeyChange | undefined): boolean {
  return written?.startTs === change.startTs && written.type === change.type
}

/** @returns the change of a record in CF_WRITE; undefined when it is none or damaged. */
function changeIn(stored: Buffer, sealed: Buffer): KeyChange | undefined {
  try {
    const bytes = opened(stored, sealed)
    if (bytes === undefined) return undefined
    const write = decodeWrite(bytes, decodeKeyTs(stored))
    if (!isData(write)) return undefined
    const { commitTs, startTs } = write
    return { type: write.type === 'put' ? 'put' : 'delete', key: decodeKey(stored), commitTs, startTs }
  } catch (error) {
    if (error instanceof CorruptRecord) return undefined
    throw error
  }
}

/** @returns the changes, or the reason why the record cannot be used. */
function changesIn(stored: Buffer, sealed: Buffer): LoggedChange[] | string {
  const value = opened(stored, sealed)
  if (value === undefined) return 'fails its checksum'
  try {
    const from = firstCommitTs(stored)
    const changes = decodeChanges(value)
    // A reader begins one span below its position.
    const isInPlace = changes.every(({ commitTs }) => commitTs >= from && commitTs - from <= RECORD_SPAN)
    const isInOrder = changes.every(
      (change, i) => i === 0 || compareChanges(changes[i - 1] as LoggedChange, change) <= 0,
    )
    return isInPlace && isInOrder ? changes : 'is out of order'
  } catch (error) {
    if (error instanceof CorruptRecord) return 'does not decode'
    throw error
  }
}

function soundChanges(stored: Buffer, sealed: Buffer): LoggedChange[] {
  const changes = changesIn(stored, sealed)
  return typeof changes === 'string' ? [] : changes
}
