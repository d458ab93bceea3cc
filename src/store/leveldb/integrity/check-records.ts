import { isReserved } from '../../../bytes/reserved-keys.js'
import { MARK_AHEAD_MS } from '../../../limits.js'
import { decodeKey, decodeKeyTs, encodedKeyBytes, encodeKey, encodeKeyAt } from '../../../percolator/codec/key.js'
import { decodeLock } from '../../../percolator/codec/lock.js'
import { packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import type { WriteRecord } from '../../../percolator/write.js'
import { type Timestamp, timestampFromMs } from '../../../timestamp.js'
import type { SystemKind } from '../../system-records.js'
import { opened } from '../engine/checksum.js'
import { type Engine, type EngineRange, pagesOf } from '../engine/engine.js'
import {
  AHEAD,
  CF_DEFAULT,
  CF_EXPIRY,
  CF_LOCK,
  CF_LOG,
  CF_NEWEST,
  CF_SYSTEM,
  CF_WRITE,
  lockKey,
  META,
  META_FORMAT,
  META_LOG_READ,
  META_LOG_START,
  META_MARK,
  META_RESTORE,
  META_SAFE_POINT,
  nameOfSystem,
  newestKey,
  versionRange,
  writeKey,
} from '../records/keyspace.js'
import { recordName } from '../records/record-name.js'
import { kindOf, requireSoundRecord } from '../records/system-kinds.js'
import { putUnknownRestore } from '../rows/restore-progress.js'
import { checkExpiries } from './check-expiries.js'
import { checkKey, type DamagedRecord, type Finding, type KeyRecords, type Suspects } from './check-key.js'
import { checkLog } from './check-log.js'
import type { DamagedRanges } from './damaged-ranges.js'
import { missingAttachment } from './missing-attachment.js'

const RECORDS_AT_A_TIME = 1000
/** A long value may have many MiB. */
const VALUES_AT_A_TIME = 16

const FAMILIES = {
  [AHEAD]: 'ahead',
  [CF_DEFAULT]: 'default',
  [CF_EXPIRY]: 'expiry',
  [CF_LOG]: 'log',
  [CF_LOCK]: 'lock',
  [META]: 'meta',
  [CF_NEWEST]: 'newest',
  [CF_SYSTEM]: 'system',
  [CF_WRITE]: 'write',
} as const
const PREFIXES = Object.keys(FAMILIES).map(Number)

type FamilyName = (typeof FAMILIES)[keyof typeof FAMILIES]

interface Counted {
  readonly records: number
  readonly bytes: number
}

export interface CheckedRecords {
  readonly families: Readonly<Record<FamilyName, Counted>>
  readonly system: Readonly<Partial<Record<SystemKind, number>>>
  /** Number of keys of users with records of any kind but `ahead`. */
  readonly keys: number
  readonly findings: number
}

export interface CheckOptions {
  readonly onFinding: (finding: Finding) => Promise<void> | void
  readonly onProgress?: (keys: number) => void
  readonly damaged?: DamagedRanges
  /** False: leaves out the log of changes and the expiries, which are checked after the records of keys are mended. */
  readonly hasDerived?: boolean
  readonly onKey?: (records: KeyRecords) => void
  readonly now?: () => number
}

/**
 * Checks every record of a database of the present format: that it decodes, that its checksum matches, and, key by key, that the
 * column families agree. Memory holds the records of one key at a time.
 * @param engine without seals.
 */
export async function checkRecords(engine: Engine, options: CheckOptions): Promise<CheckedRecords> {
  const check = new Check(engine, options)
  await check.run()
  return { families: check.families, system: check.system, keys: check.keys, findings: check.findings }
}

interface Entry {
  readonly stored: Buffer
  /** Without its seal; empty for CF_DEFAULT. */
  readonly value: Buffer
}

interface Broken {
  readonly stored: Buffer
  readonly value: undefined
}

interface Group {
  readonly key: Buffer
  /** The encoded key, by which groups are sorted. */
  readonly place: Buffer
  readonly entries: Entry[]
  readonly damaged: DamagedRecord[]
}

class Check {
  readonly #engine: Engine
  readonly #options: CheckOptions
  readonly families = Object.fromEntries(
    Object.values(FAMILIES).map((name) => [name, { records: 0, bytes: 0 }]),
  ) as Record<FamilyName, { records: number; bytes: number }>
  readonly system: Partial<Record<SystemKind, number>> = {}
  keys = 0
  findings = 0
  #mayExpire = false

  constructor(engine: Engine, options: CheckOptions) {
    this.#engine = engine
    this.#options = options
  }

  async run(): Promise<void> {
    const mark = await this.#checkMeta()
    await this.#checkSystem()
    await this.#checkGaps()
    await this.#checkKeys(mark)
    if (this.#options.hasDerived === false) return
    await this.#checkLog()
    this.families.expiry = await checkExpiries(this.#engine, (finding) => this.#found(finding), this.#mayExpire)
  }

  async #checkLog(): Promise<void> {
    const { records, bytes } = await checkLog(this.#engine, (finding) => this.#found(finding))
    this.families.log = { records, bytes }
  }

  async #found(finding: Finding): Promise<void> {
    this.findings++
    await this.#options.onFinding(finding)
  }

  /**
   * Reports an unusable record, to be removed. The `restore` record is replaced instead, because it says that the store is
   * incomplete.
   */
  async #damaged(stored: Buffer, why: string, isLoss: boolean): Promise<void> {
    const key = userKeyOf(stored)
    await this.#found({
      kind: 'damaged_record',
      ...(key && { key }),
      message: `${recordName(stored)} ${why}`,
      isLoss,
      ops: [stored.equals(META_RESTORE) ? putUnknownRestore() : { type: 'del', key: stored }],
    })
  }

  /** Yields the records of a column family. `value` is undefined when the checksum does not match. */
  async *#entries(prefix: keyof typeof FAMILIES): AsyncGenerator<Entry | Broken, void> {
    const counted = this.families[FAMILIES[prefix]]
    const isLong = prefix === CF_DEFAULT
    for await (const page of pagesOf(this.#engine, rangeOf(prefix), isLong ? VALUES_AT_A_TIME : RECORDS_AT_A_TIME))
      for (const [stored, sealed] of page) {
        counted.records++
        counted.bytes += stored.length + sealed.length
        const value = stored.equals(META_FORMAT) ? sealed : opened(stored, sealed)
        yield { stored, value: isLong && value !== undefined ? NOTHING : value }
      }
  }

  /** Yields the entries whose checksums match, and reports the others. */
  async *#sound(prefix: typeof META | typeof CF_SYSTEM): AsyncGenerator<Entry, void> {
    for await (const { stored, value } of this.#entries(prefix)) {
      if (value !== undefined) yield { stored, value }
      else await this.#damaged(stored, FAILS, prefix === CF_SYSTEM || isPromise(stored))
    }
  }

  async #checkMeta(): Promise<Timestamp> {
    let mark: Timestamp | undefined
    for await (const { stored, value } of this.#sound(META)) {
      if (!NUMBERS.some((meta) => meta.equals(stored))) continue
      const number = numberIn(value)
      if (number === undefined) await this.#damaged(stored, 'holds no timestamp', isPromise(stored))
      else if (stored.equals(META_MARK)) mark = number
    }
    if (mark !== undefined) return mark
    const isEmpty = (await firstKey(this.#engine, rangeOf(CF_WRITE))) === undefined
    const isNew = isEmpty && (await firstKey(this.#engine, rangeOf(CF_LOCK))) === undefined
    const present = timestampFromMs((this.#options.now ?? Date.now)() + MARK_AHEAD_MS)
    if (!isNew)
      await this.#found({
        kind: 'bad_meta',
        message: "the oracle's mark is missing",
        isLoss: false,
        ops: [{ type: 'put', key: META_MARK, value: packRecord([present]) }],
      })
    return present
  }

  /** The seal vouches for the name too, so an unknown kind is a later version's. */
  async #checkSystem(): Promise<void> {
    for await (const { stored, value } of this.#sound(CF_SYSTEM)) {
      const name = nameOfSystem(stored)
      const kind = kindOf(name)
      if (kind === undefined) continue
      if (decodes(() => requireSoundRecord(kind, name, value))) this.system[kind] = (this.system[kind] ?? 0) + 1
      else await this.#damaged(stored, 'does not decode', true)
    }
  }

  async #checkGaps(): Promise<void> {
    for (const [i, prefix] of [-1, ...PREFIXES].entries()) {
      const range = { gte: Buffer.of(...(prefix < 0 ? [] : [prefix + 1])), lt: boundOf(PREFIXES[i]), values: false }
      for await (const page of pagesOf(this.#engine, range, RECORDS_AT_A_TIME))
        for (const [stored] of page) {
          const message = `${recordName(stored)} is of no known kind`
          await this.#found({ kind: 'unknown_record', message, isLoss: false, ops: [{ type: 'del', key: stored }] })
        }
    }
  }

  /** Walks side by side over the five families that are sorted by key. */
  async #checkKeys(mark: Timestamp): Promise<void> {
    const streams = KEYED.map((prefix) => this.#groups(prefix))
    const heads = await Promise.all(streams.map((stream) => stream.next()))
    try {
      for (;;) {
        let first: Group | undefined
        for (const { value } of heads) if (value && (!first || value.place.compare(first.place) < 0)) first = value
        if (first === undefined) return
        const { key } = first
        const groups: Group[] = []
        for (const [i, { value }] of heads.entries()) {
          if (!value?.key.equals(key)) continue
          groups[i] = value
          heads[i] = await (streams[i] as (typeof streams)[number]).next()
        }
        const records = recordsOf(key, groups)
        const findings = checkKey(records, mark, this.#suspectsOf(key))
        for (const finding of findings) await this.#found(finding)
        const missing = await missingAttachment(this.#engine, { key, writes: mendedWrites(records, findings) }, mark)
        if (missing !== undefined) await this.#found(missing)
        this.#mayExpire ||= records.writes.some(({ expireTs }) => expireTs !== 0)
        this.#options.onKey?.(records)
        if (!isReserved(key)) this.keys++
        this.#options.onProgress?.(this.keys)
      }
    } finally {
      for (const stream of streams) await stream.return()
    }
  }

  #suspectsOf(key: Buffer): Suspects | undefined {
    const { damaged } = this.#options
    if (damaged === undefined || damaged.isEmpty) return undefined
    const { gte, lt } = versionRange(CF_WRITE, key)
    return {
      lock: damaged.meets(lockKey(key)),
      newest: damaged.meets(newestKey(key)),
      writes: damaged.meets(gte, lt),
    }
  }

  async *#groups(prefix: (typeof KEYED)[number]): AsyncGenerator<Group, void> {
    let group: Group | undefined
    for await (const entry of this.#entries(prefix)) {
      const { stored, value } = entry
      const key = userKeyOf(stored)
      if (key === undefined) {
        await this.#damaged(stored, FAILS, prefix !== AHEAD && prefix !== CF_NEWEST)
        continue
      }
      if (!group?.key.equals(key)) {
        if (group !== undefined) yield group
        group = { key, place: stored.subarray(1, 1 + encodedKeyBytes(key.length)), entries: [], damaged: [] }
      }
      if (value === undefined) group.damaged.push({ stored, why: FAILS })
      else if (!decodes(() => DECODED[prefix](entry))) group.damaged.push({ stored, why: 'does not decode' })
      else group.entries.push(entry)
    }
    if (group !== undefined) yield group
  }
}

const FAILS = 'fails its checksum'
/** True when clients or an operator rely on the record and no other record can replace it. */
function isPromise(stored: Buffer): boolean {
  return ![META_FORMAT, ...NUMBERS].some((own) => own.equals(stored))
}

const NOTHING = Buffer.alloc(0)
const NUMBERS = [META_MARK, META_SAFE_POINT, META_LOG_START, META_LOG_READ]
const KEYED = [CF_LOCK, CF_WRITE, CF_DEFAULT, CF_NEWEST, AHEAD] as const

/** Each throws CorruptRecord. */
const DECODED = {
  [CF_LOCK]: ({ stored, value }: Entry) => [decodeKey(stored), decodeLock(value)],
  [CF_WRITE]: ({ stored, value }: Entry) => [decodeKey(stored), decodeWrite(value, decodeKeyTs(stored))],
  [CF_DEFAULT]: ({ stored }: Entry) => [decodeKey(stored), decodeKeyTs(stored)],
  [CF_NEWEST]: ({ stored }: Entry) => decodeKey(stored),
  [AHEAD]: ({ stored }: Entry) => [decodeKey(stored), decodeKeyTs(stored)],
} satisfies Record<(typeof KEYED)[number], (entry: Entry) => unknown>

/** @param groups in the order of `KEYED`. */
function recordsOf(key: Buffer, groups: readonly (Group | undefined)[]): KeyRecords {
  const [lock, writes, values, newest, ahead] = KEYED.map((_, i) => groups[i]?.entries ?? [])
  return {
    key,
    lock: lock?.[0] && decodeLock(lock[0].value),
    writes: (writes ?? []).map(({ stored, value }) => decodeWrite(value, decodeKeyTs(stored))),
    valuesAt: (values ?? []).map(({ stored }) => decodeKeyTs(stored)),
    newest: newest?.[0]?.value,
    aheadAt: (ahead ?? []).map(({ stored }) => decodeKeyTs(stored)),
    damaged: groups.flatMap((group) => group?.damaged ?? []),
  }
}

/** The write records after the findings are mended. An older version may then be the newest. */
function mendedWrites({ key, writes }: KeyRecords, findings: readonly Finding[]): readonly WriteRecord[] {
  let mended = writes
  for (const op of findings.flatMap(({ ops }) => ops)) {
    if (op.key[0] !== CF_WRITE) continue
    mended = mended.filter(({ commitTs }) => !writeKey(key, commitTs).equals(op.key))
    if (op.type === 'put') mended = [...mended, decodeWrite(op.value, decodeKeyTs(op.key))]
  }
  return mended === writes ? writes : [...mended].sort((a, b) => b.commitTs - a.commitTs)
}

function rangeOf(prefix: number): EngineRange {
  return { gte: Buffer.of(prefix), lt: Buffer.of(prefix + 1) }
}

function boundOf(prefix: number | undefined): Buffer {
  return prefix === undefined ? Buffer.alloc(256, 0xff) : Buffer.of(prefix)
}

async function firstKey(engine: Engine, range: EngineRange): Promise<Buffer | undefined> {
  for await (const page of pagesOf(engine, { ...range, values: false }, 1)) return page[0]?.[0]
  return undefined
}

function numberIn(value: Buffer): number | undefined {
  let number: unknown
  decodes(() => {
    number = unpackRecord(value, 'meta', 1)[0]
  })
  return typeof number === 'number' && Number.isSafeInteger(number) && number >= 0 ? number : undefined
}

/** @returns undefined when the bytes do not encode a key. */
function userKeyOf(stored: Buffer): Buffer | undefined {
  const prefix = stored[0] as number
  if (!KEYED.some((keyed) => keyed === prefix)) return undefined
  try {
    const key = decodeKey(stored)
    const isVersioned = prefix !== CF_LOCK && prefix !== CF_NEWEST
    const encoded = isVersioned ? encodeKeyAt(prefix, key, decodeKeyTs(stored)) : encodeKey(prefix, key)
    return encoded.equals(stored) ? key : undefined
  } catch {
    return undefined
  }
}

function decodes(decode: () => unknown): boolean {
  try {
    decode()
    return true
  } catch {
    return false
  }
}
