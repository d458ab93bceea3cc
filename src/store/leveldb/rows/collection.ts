import { keyText } from '../../../bytes/key-text.js'
import { isReserved } from '../../../bytes/reserved-keys.js'
import { type GcAnswer, gc } from '../../../percolator/actions/gc.js'
import { decodeKey, decodeKeyTs, encodeKeyEnd } from '../../../percolator/codec/key.js'
import { packRecord } from '../../../percolator/codec/record.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import { sameKey } from '../../../percolator/row.js'
import type { WriteRecord } from '../../../percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../../timestamp.js'
import type { Pace } from '../../pace.js'
import { readPage } from '../engine/engine.js'
import {
  CF_WRITE,
  expiryBound,
  familyRange,
  logBound,
  META_SAFE_POINT,
  versionRange,
  writeKey,
} from '../records/keyspace.js'
import { RECORD_SPAN } from './change-records.js'
import { Compaction, type Walked } from './compaction.js'
import { guard } from './guard.js'
import type { RowStore } from './row-store.js'

const STEP_RECORDS = 512

/** Not a key: keys have at least one byte. */
const SAFE_POINT_LATCH = ''

export class Collection {
  readonly #rows: RowStore
  #collectedTo: Timestamp = -1
  /** The log has no record below this key. */
  #trimmedTo = logBound(0)
  /** CF_EXPIRY has no entry below this key. */
  #expiriesTrimmedTo = expiryBound(0)

  constructor(rows: RowStore) {
    this.#rows = rows
  }

  /** Removes the records of CF_LOG whose changes are all at or below the safe point, which no feed can need. */
  async #trimLog(safePoint: Timestamp, pace?: Pace): Promise<void> {
    this.#trimmedTo = await this.#trim(this.#trimmedTo, logBound(Math.max(0, safePoint - RECORD_SPAN)), pace)
  }

  async #hasExpired(safePoint: Timestamp): Promise<boolean> {
    const range = { gte: this.#expiriesTrimmedTo, lt: expiryBound(safePoint + 1), values: false }
    return (await readPage(this.#rows.engine, range, 1)).length > 0
  }

  /** Removes the entries of CF_EXPIRY at or below the safe point: the versions are gone, and no feed shows them. */
  async #trimExpiries(safePoint: Timestamp, pace?: Pace): Promise<void> {
    this.#expiriesTrimmedTo = await this.#trim(this.#expiriesTrimmedTo, expiryBound(safePoint + 1), pace)
  }

  /** @returns where the next trim begins: behind the deleted records, over which LevelDB would have to walk. */
  async #trim(from: Buffer, lt: Buffer, pace?: Pace): Promise<Buffer> {
    let gte = from
    for (let isEnd = false; !isEnd && !pace?.signal?.aborted; ) {
      const begin = performance.now()
      this.#rows.health.requireWritable()
      const page = await readPage(this.#rows.engine, { gte, lt, values: false }, STEP_RECORDS)
      isEnd = page.length < STEP_RECORDS
      const last = page.at(-1)
      if (last === undefined) break
      await this.#rows.submit(page.map(([key]) => ({ type: 'del', key })))
      gte = last[0]
      await pace?.pause(performance.now() - begin)
    }
    return gte
  }

  raiseSafePoint(safePoint: Timestamp): Promise<Timestamp> {
    return guard(() =>
      this.#rows.latches.hold([SAFE_POINT_LATCH], async () => {
        if (safePoint <= this.#rows.safePoint) return this.#rows.safePoint
        this.#rows.health.requireWritable()
        await this.#rows.submit([{ type: 'put', key: META_SAFE_POINT, value: packRecord([safePoint]) }])
        this.#rows.safePoint = safePoint
        return safePoint
      }),
    )
  }

  collect(safePoint: Timestamp, pace?: Pace): Promise<number> {
    return guard(async () => {
      await this.raiseSafePoint(safePoint)
      // No record is newer than the last collection, and none has expired since.
      if (this.#rows.written.newest < this.#collectedTo && !(await this.#hasExpired(safePoint))) return 0
      await this.#trimLog(safePoint, pace)
      const compaction = new Compaction(this.#rows.engine)
      let removed = 0
      // Each step opens a new iterator: an open one would keep every file that a compaction replaces.
      let { gte, lt } = familyRange(CF_WRITE)
      for (let isEnd = false; !isEnd && !pace?.signal?.aborted; ) {
        const begin = performance.now()
        this.#rows.health.requireWritable()
        const page = await readPage(this.#rows.engine, { gte, lt }, STEP_RECORDS)
        isEnd = page.length < STEP_RECORDS
        const rows = historiesOf(page)
        // The last history may continue beyond the page. The next page reads it again; if it fills that page, it is collected in
        // parts.
        const last = isEnd ? undefined : rows.pop()
        if (last !== undefined && rows.length === 0) {
          removed += await this.#collectLong(last.key, safePoint, compaction, pace)
          gte = encodeKeyEnd(CF_WRITE, last.key)
        } else {
          removed += await this.#collectWhole(rows, safePoint, compaction)
          if (last !== undefined) gte = versionRange(CF_WRITE, last.key).gte
        }
        if (compaction.isDue || isEnd) await compaction.compactNoted()
        await pace?.pause(performance.now() - begin)
      }
      if (pace?.signal?.aborted) return removed
      await this.#trimExpiries(safePoint, pace)
      this.#collectedTo = Math.max(this.#collectedTo, safePoint)
      return removed
    })
  }

  /** Most rows have nothing to collect. Rows that have are read again under their latches. */
  async #collectWhole(rows: readonly Row[], safePoint: Timestamp, compaction: Compaction): Promise<number> {
    const keys = rows.flatMap((row) => (gc(row, safePoint).removed > 0 ? [row.key] : []))
    const collected = new Map<string, GcAnswer>()
    if (keys.length > 0) {
      await this.#rows.latches.hold(keys.map(keyText), async () => {
        const found = await this.#rows.readRows(keys, TIMESTAMP_MAX, 'all')
        const answers = found.map((row) => gc(row, safePoint))
        await this.#rows.apply(answers.flatMap(({ mutations }) => mutations))
        answers.forEach((answer, i) => {
          collected.set(keyText(keys[i] as Uint8Array), answer)
        })
      })
    }
    let removed = 0
    for (const row of rows) {
      const answer = keys.length === 0 ? undefined : collected.get(keyText(row.key))
      if (!isReserved(row.key)) compaction.note(row.key, walked(row, answer))
      removed += answer?.removed ?? 0
    }
    return removed
  }

  /** Collects a history of any length in parts that fit into memory. Other requests for the key may run between the parts. */
  async #collectLong(key: Uint8Array, safePoint: Timestamp, compaction: Compaction, pace?: Pace): Promise<number> {
    let { gte, lt } = versionRange(CF_WRITE, key)
    let base: WriteRecord | undefined
    let removed = 0
    for (let isLast = false; !isLast && !pace?.signal?.aborted; ) {
      const begin = performance.now()
      await this.#rows.latches.hold([keyText(key)], async () => {
        this.#rows.health.requireAvailable()
        const page = await readPage(this.#rows.engine, { gte, lt }, STEP_RECORDS)
        isLast = page.length < STEP_RECORDS
        const row: Row = { key, writes: historiesOf(page)[0]?.writes ?? [] }
        const answer = gc(row, safePoint, { base, isLast })
        await this.#rows.apply(answer.mutations)
        compaction.note(key, walked(row, answer))
        base = answer.base
        removed += answer.removed
        const last = row.writes.at(-1)
        if (last !== undefined) gte = writeKey(key, last.commitTs - 1)
      })
      await pace?.pause(performance.now() - begin)
    }
    return removed
  }
}

interface Row {
  readonly key: Uint8Array
  readonly writes: readonly WriteRecord[]
}

function historiesOf(page: readonly [Buffer, Buffer][]): Row[] {
  const rows: { key: Buffer; writes: WriteRecord[] }[] = []
  for (const [recordKey, bytes] of page) {
    const key = decodeKey(recordKey)
    const write = decodeWrite(bytes, decodeKeyTs(recordKey))
    const last = rows.at(-1)
    if (last !== undefined && sameKey(last.key, key)) last.writes.push(write)
    else rows.push({ key, writes: [write] })
  }
  return rows
}

function walked({ writes }: Row, answer: GcAnswer | undefined): Walked {
  const long = writes.filter(({ type, shortValue }) => type === 'put' && shortValue === undefined).length
  const longRemoved = answer?.mutations.filter(({ type }) => type === 'delete-value').length ?? 0
  return { records: writes.length, removed: answer?.removed ?? 0, longKept: long - longRemoved, longRemoved }
}
