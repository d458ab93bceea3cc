import { keyText } from '../../../bytes/key-text.js'
import type { Ack, Cell, CellChange, Entry, Failure } from '../../../observers/rules/cell.js'
import { decodeAck, decodeEntry, decodeFailure, decodeUncovered } from '../../../observers/rules/codec/cell.js'
import type { ExpiryChange } from '../../../percolator/change.js'
import type { Timestamp } from '../../../timestamp.js'
import { CELL_KINDS, type CellKind, cellEnd, cellName, cellPrefix, idOfCell, keyOfCell } from '../../cell-names.js'
import type { CellDecision, CellPage, MarkedCells } from '../../marked-cells.js'
import { type CellEffect, markedChange } from '../../observed.js'
import type { Pace } from '../../pace.js'
import type { SystemName, SystemRecords, SystemWrite } from '../../system-records.js'
import type { RowStore } from './row-store.js'

/** Cells that one read asks for. */
const CELLS_AT_A_TIME = 256
/** Cells that one batch marks as expired. */
const EXPIRED_AT_A_TIME = 512
/** Records of unregistered observers that one write removes. */
const SWEPT_AT_A_TIME = 512

/** The cells of a store, by its system records. */
export class CellCalls implements MarkedCells {
  readonly isShared = false
  readonly #rows: RowStore
  readonly #system: SystemRecords

  constructor(rows: RowStore, system: SystemRecords) {
    this.#rows = rows
    this.#system = system
  }

  async read(id: Timestamp, keys: readonly Uint8Array[]): Promise<Cell[]> {
    const cells: Cell[] = []
    for (let from = 0; from < keys.length; from += CELLS_AT_A_TIME) {
      const some = keys.slice(from, from + CELLS_AT_A_TIME)
      const values = await this.#rows.records.many(
        some.flatMap((key) => CELL_KINDS.map((kind) => cellName(kind, id, key))),
      )
      some.forEach((key, i) => {
        const [entry, ack, failure] = values.slice(3 * i, 3 * i + 3)
        cells.push({
          key,
          entry: entry && decodeEntry(entry),
          ack: ack && decodeAck(ack),
          failure: failure && decodeFailure(failure),
        })
      })
    }
    return cells
  }

  async entries(id: Timestamp, page: CellPage): Promise<{ key: Uint8Array; entry: Entry }[]> {
    return (await this.#page('notify', id, page)).map(([key, value]) => ({ key, entry: decodeEntry(value) }))
  }

  async failures(id: Timestamp, page: CellPage): Promise<{ key: Uint8Array; failure: Failure }[]> {
    return (await this.#page('failure', id, page)).map(([key, value]) => ({ key, failure: decodeFailure(value) }))
  }

  async acks(id: Timestamp, page: CellPage): Promise<{ key: Uint8Array; ack: Ack }[]> {
    return (await this.#page('ack', id, page)).map(([key, value]) => ({ key, ack: decodeAck(value) }))
  }

  async #page(kind: CellKind, id: Timestamp, { after, limit }: CellPage): Promise<[Uint8Array, Uint8Array][]> {
    const from = after === undefined ? cellPrefix(kind, id) : (`${cellName(kind, id, after)}\0` as const)
    const found = await this.#rows.records.page(from, cellEnd(kind, id), limit)
    return found.map(([name, value]) => [keyOfCell(kind, name), value])
  }

  change<T>(
    id: Timestamp,
    keys: readonly Uint8Array[],
    decide: (cells: readonly Cell[], ts: Timestamp) => CellDecision<T>,
  ): Promise<T> {
    let cells: readonly Cell[] = []
    let ts = 0
    return this.#rows.update({
      keys: [],
      latches: keys.map(keyText),
      startTs: 0,
      depth: 'none',
      preparation: {
        inTurns: async () => {
          cells = await this.read(id, keys)
          ts = await this.#rows.oracle.next()
        },
      },
      decide: () => {
        const { value, changes, beside } = decide(cells, ts)
        return { ok: true, value, mutations: [], beside, ridden: { effects: effectsOf(id, cells, changes) } }
      },
    })
  }

  async markExpired(expiries: readonly ExpiryChange[], beside: readonly SystemWrite[]): Promise<void> {
    const marks = new Map<SystemName, ExpiredCell>()
    for (const { key, commitTs } of expiries)
      for (const { id } of this.#rows.observed.at(key))
        if (commitTs > id) marks.set(cellName('notify', id, key), { id, key, commitTs }) // The last one covers those before.
    const cells = [...marks.values()]
    for (let from = 0; ; from += EXPIRED_AT_A_TIME) {
      const isLast = from + EXPIRED_AT_A_TIME >= cells.length
      await this.#markSome(cells.slice(from, from + EXPIRED_AT_A_TIME), isLast ? beside : [])
      if (isLast) return
    }
  }

  #markSome(cells: readonly ExpiredCell[], beside: readonly SystemWrite[]): Promise<void> {
    let records: readonly (Uint8Array | undefined)[] = []
    return this.#rows.update({
      keys: [],
      latches: [...new Set(cells.map(({ key }) => keyText(key)))],
      startTs: 0,
      depth: 'none',
      preparation: {
        inTurns: async () => {
          records = await this.#rows.records.many(
            cells.flatMap(({ id, key }) => CELL_KINDS.map((kind) => cellName(kind, id, key))),
          )
        },
      },
      decide: () => {
        const effects = cells.flatMap((cell, i): CellEffect[] => {
          const [entry, ack, failure] = records.slice(3 * i, 3 * i + 3)
          const change = this.#expiredChange(cell, decodeUncovered(entry, failure), ack && decodeAck(ack))
          return change === undefined ? [] : [{ id: cell.id, change }]
        })
        return { ok: true, value: undefined, mutations: [], beside, ridden: { effects } }
      },
    })
  }

  /** @returns undefined when a mark would tell nothing new. */
  #expiredChange(
    { id, key, commitTs }: ExpiredCell,
    present: Entry | undefined,
    ack: Ack | undefined,
  ): CellChange | undefined {
    const observer = this.#rows.observed.withId(id)
    if (observer === undefined || (ack !== undefined && ack.ackTs >= commitTs)) return undefined
    if (present !== undefined && present.changeTs >= commitTs) return undefined
    return markedChange(observer, key, { changeTs: commitTs, kind: 'expired', depth: 0 }, present)
  }

  async sweep(pace?: Pace): Promise<void> {
    for (const kind of CELL_KINDS) {
      const end = `${kind}0` as SystemName // The character after the slash.
      for (let from: SystemName | undefined = `${kind}/`; from !== undefined && !pace?.signal?.aborted; ) {
        const begin = performance.now()
        from = await this.#sweepPage(kind, from, end)
        await pace?.pause(performance.now() - begin)
      }
    }
  }

  /** @returns where the next page begins: behind the removed records, which LevelDB would have to pass; undefined at the end. */
  async #sweepPage(kind: CellKind, from: SystemName, end: SystemName): Promise<SystemName | undefined> {
    const page = await this.#rows.records.page(from, end, SWEPT_AT_A_TIME)
    const [first] = page
    if (first === undefined) return undefined
    const id = idOfCell(kind, first[0])
    if (id !== undefined && this.#rows.observed.withId(id) !== undefined) return cellEnd(kind, id)
    const gone = page.map(([name]) => name).filter((name) => idOfCell(kind, name) === id)
    await this.#system.write(gone.map((name) => ({ name, value: undefined })))
    return `${gone.at(-1) as SystemName}\0`
  }
}

interface ExpiredCell {
  readonly id: Timestamp
  readonly key: Uint8Array
  readonly commitTs: Timestamp
}

function effectsOf(id: Timestamp, cells: readonly Cell[], changes: readonly CellChange[]): CellEffect[] {
  const present = new Map(cells.map(({ key, entry }) => [keyText(key), entry]))
  return changes.map((change) => ({ id, change: atLeastAsNew(change, present.get(keyText(change.key))) }))
}

/** A transaction may have committed above the timestamp of a notification. */
function atLeastAsNew(change: CellChange, present: Entry | undefined): CellChange {
  if (!change.entry || present === undefined || present.changeTs <= change.entry.changeTs) return change
  return { ...change, entry: present }
}
