import { keyText } from '../../../bytes/key-text.js'
import type { Ack, Cell, CellChange, Failure, StoredNotification } from '../../../observers/rules/cell.js'
import { decodeAck, decodeFailure, decodeNotification } from '../../../observers/rules/codec/cell.js'
import type { CellName } from '../../../observers/rules/codec/cell-key.js'
import { uncoveredNotification } from '../../../observers/rules/mark.js'
import type { ExpiryChange } from '../../../percolator/change.js'
import type { Timestamp } from '../../../timestamp.js'
import { CELL_KINDS, type CellKind, cellEnd, cellName, cellPrefix, idOfCell, keyOfCell } from '../../cell-names.js'
import type { CellDecision, CellPage, MarkedCells } from '../../marked-cells.js'
import { type CellEffect, markedChange } from '../../observed.js'
import type { Pace } from '../../pace.js'
import type { SystemName, SystemRecords, SystemWrite } from '../../system-records.js'
import type { RowStore } from './row-store.js'

const EXPIRED_AT_A_TIME = 512
const SWEPT_AT_A_TIME = 512

export class CellCalls implements MarkedCells {
  readonly isShared = false
  readonly #rows: RowStore
  readonly #system: SystemRecords

  constructor(rows: RowStore, system: SystemRecords) {
    this.#rows = rows
    this.#system = system
  }

  read(id: Timestamp, keys: readonly Uint8Array[]): Promise<Cell[]> {
    return this.#read(keys.map((key) => ({ id, key })))
  }

  async #read(named: readonly CellName[]): Promise<Cell[]> {
    const names = named.flatMap(({ id, key }) => CELL_KINDS.map((kind) => cellName(kind, id, key)))
    const values = await this.#rows.records.many(names)
    return named.map(({ key }, i) => {
      const [notification, ack, failure] = values.slice(3 * i, 3 * i + 3)
      return {
        key,
        notification: notification && decodeNotification(notification),
        ack: ack && decodeAck(ack),
        failure: failure && decodeFailure(failure),
      }
    })
  }

  async notifications(id: Timestamp, page: CellPage): Promise<{ key: Uint8Array; notification: StoredNotification }[]> {
    return (await this.#page('notify', id, page)).map(([key, value]) => ({
      key,
      notification: decodeNotification(value),
    }))
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
    return this.#change(
      keys.map((key) => ({ id, key })),
      (cells, ts) => {
        const { value, changes, extraRecords } = decide(cells, ts)
        return { value, extraRecords, effects: effectsOf(id, cells, changes) }
      },
    )
  }

  #change<T>(named: readonly CellName[], decide: (cells: readonly Cell[], ts: Timestamp) => Decided<T>): Promise<T> {
    let cells: readonly Cell[] = []
    let ts = 0
    return this.#rows.update({
      keys: [],
      latches: [...new Set(named.map(({ key }) => keyText(key)))],
      startTs: 0,
      depth: 'none',
      preparation: {
        load: async () => {
          cells = await this.#read(named)
          ts = await this.#rows.oracle.next()
        },
      },
      decide: () => {
        const { value, effects, extraRecords } = decide(cells, ts)
        return { ok: true, value, mutations: [], extraRecords, decidedEffects: { effects } }
      },
    })
  }

  async markExpired(expiries: readonly ExpiryChange[], extraRecords: readonly SystemWrite[]): Promise<void> {
    const marks = new Map<SystemName, ExpiredCell>()
    for (const { key, commitTs } of expiries)
      for (const { id } of this.#rows.observed.at(key))
        if (commitTs > id) marks.set(cellName('notify', id, key), { id, key, commitTs }) // The last expiry covers earlier ones.
    const cells = [...marks.values()]
    for (let from = 0, isLast = false; !isLast; from += EXPIRED_AT_A_TIME) {
      const some = cells.slice(from, from + EXPIRED_AT_A_TIME)
      isLast = from + EXPIRED_AT_A_TIME >= cells.length
      await this.#change(some, (found) => ({
        value: undefined,
        effects: some.flatMap((cell, i) => this.#expiredEffect(cell, found[i] as Cell) ?? []),
        extraRecords: isLast ? extraRecords : [],
      }))
    }
  }

  /** @returns undefined when the cell is marked already, or its acknowledgement covers the expiry. */
  #expiredEffect({ id, key, commitTs }: ExpiredCell, found: Cell): CellEffect | undefined {
    const { ack } = found
    const observer = this.#rows.observed.withId(id)
    if (observer === undefined || (ack !== undefined && ack.ackTs >= commitTs)) return undefined
    const present = uncoveredNotification(found)
    if (present !== undefined && present.changeTs >= commitTs) return undefined
    return { id, change: markedChange(observer, key, { changeTs: commitTs, kind: 'expired', depth: 0 }, present) }
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

  /**
   * @returns where the next page begins: behind the removed records, which LevelDB would otherwise have to pass; undefined at the
   *   end.
   */
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

interface Decided<T> extends Pick<CellDecision<T>, 'value' | 'extraRecords'> {
  readonly effects: readonly CellEffect[]
}

interface ExpiredCell extends CellName {
  readonly commitTs: Timestamp
}

function effectsOf(id: Timestamp, cells: readonly Cell[], changes: readonly CellChange[]): CellEffect[] {
  const present = new Map(cells.map(({ key, notification }) => [keyText(key), notification]))
  return changes.map((change) => ({ id, change: atLeastAsNew(change, present.get(keyText(change.key))) }))
}

/** A transaction may have committed above the timestamp of the notification. */
function atLeastAsNew(change: CellChange, present: StoredNotification | undefined): CellChange {
  if (!change.notification || present === undefined || present.changeTs <= change.notification.changeTs) return change
  return { ...change, notification: present }
}
