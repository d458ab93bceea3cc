import { isOfServer } from '../../../percolator/codec/key.js'
import type { Timestamp } from '../../../timestamp.js'
import { cellEnd, cellPrefix, idOfCell } from '../../cell-names.js'
import type { SystemKind } from '../../system-records.js'
import { OUTCOMES_OF_FORMAT_3, SERVER_OF_FORMAT_3 } from '../directory/move-system-records.js'
import type { EngineRange } from '../engine/engine.js'
import type { LostRecords, StoredRange } from '../files/lost-records.js'
import type { DamagedRanges } from '../integrity/damaged-ranges.js'
import {
  CF_LOCK,
  CF_LOG,
  CF_NEWEST,
  CF_WRITE,
  META,
  META_RESTORE,
  nameOfSystem,
  systemKey,
  systemRange,
} from '../records/keyspace.js'
import { placeName, recordName } from '../records/record-name.js'
import { isCellKind, kindOf, SYSTEM_KINDS } from '../records/system-kinds.js'
import { REMEDIES, type RegisteredObservers } from './registered-observers.js'

/** Data of clients that can no longer be read, or may not be as they wrote it. */
export interface Loss {
  readonly message: string
  readonly of: 'key' | 'past' | 'versions' | 'locks' | 'log' | 'system' | 'meta' | 'anything'
  readonly key?: Uint8Array
  /** For other losses: range of stored keys. Absent: any key. */
  readonly range?: StoredRange
}

/**
 * Losses of records whose keys are unknown. `past`: older versions of keys whose newest have copies; `versions`: the newest ones
 * too.
 * @param isConverted false: system records were in the places of format 3.
 */
export function lossesOf(
  lost: LostRecords,
  damaged: DamagedRanges,
  isConverted: boolean,
  observers: RegisteredObservers,
): Loss[] {
  const { file } = lost
  if (lost.kind === 'tables') {
    const message = `${file}: the list of tables is lost: data of missing tables are lost, and deleted data of replaced tables may be back`
    return [{ message, of: 'anything' }]
  }
  if (lost.kind === 'log') {
    const named = lost.keys.filter(([prefix]) => prefix === CF_WRITE || prefix === CF_LOCK).map(recordName)
    const what = named.length === 0 ? '' : `, among them ${named.join(', ')}`
    const till = lost.isLaterKept === true ? 'to the next record that can be read, which was kept' : `on${what}`
    return [{ message: `${file}: the writes from offset ${lost.offset} ${till}`, of: 'anything' }]
  }
  const losses: Loss[] = []
  const { range } = lost
  const add = (of: Loss['of'], within: StoredRange | undefined, what: string, remedy = ''): void => {
    if (within === undefined) return
    losses.push({ message: `${file}: ${what} ${spanOf(within)}${remedy}`, of, range: within })
  }
  const writes = clipped(range, CF_WRITE)
  const isPastOnly = writes !== undefined && !damaged.meets(...moved(writes, CF_NEWEST))
  if (isPastOnly) add('past', writes, 'any versions of keys but the newest, and any rollbacks,')
  else add('versions', writes, 'any versions of keys')
  add('locks', clipped(range, CF_LOCK), 'any locks')
  // Other changes of the log are made again from the write records.
  add('log', clipped(range, CF_LOG), 'any delete_range', DELETE_RANGE_REMEDY)
  if (!isConverted)
    add('system', clippedTo(range, OUTCOMES_OF_FORMAT_3), 'any outcomes of requests with an idempotency key')
  for (const [kind, { all }] of Object.entries(SYSTEM_KINDS) as [SystemKind, (typeof SYSTEM_KINDS)[SystemKind]][]) {
    const place = isConverted ? systemRange(`${kind}/`) : PLACES_OF_FORMAT_3[kind]
    const within = place && clippedTo(range, place)
    if (within === undefined || !isCellKind(kind)) add('system', within, `any ${all}`)
    else {
      const meets = (id: Timestamp): boolean =>
        clippedTo(range, { gte: systemKey(cellPrefix(kind, id)), lt: systemKey(cellEnd(kind, id)) }) !== undefined
      const whose = observers.whose(meets)
      // Records of other observers belong to removed ones and are not needed.
      if (whose !== undefined) add('system', within, `any ${all} for ${whose.names},`, whose.remedies[kind])
    }
  }
  const meta = clipped(range, META)
  if (meta !== undefined && holds(meta, META_RESTORE))
    losses.push({ message: `${file}: whether a restore was complete`, of: 'meta', range: meta })
  return losses
}

const PLACES_OF_FORMAT_3: Readonly<Partial<Record<SystemKind, EngineRange>>> = {
  pin: SERVER_OF_FORMAT_3,
}

const DELETE_RANGE_REMEDY = ': a copy that a feed keeps may hold keys that are gone'

export function lossOfLog(stored: Buffer, message: string): Loss {
  return {
    message: `${message}: any delete_range in it${DELETE_RANGE_REMEDY}`,
    of: 'log',
    range: { gte: stored, lte: stored },
  }
}

export const lossOfKey = (key: Uint8Array, message: string): Loss => ({ message, of: 'key', key })

export function lossOfSystem(stored: Buffer, message: string, observers: RegisteredObservers): Loss {
  return { message: `${message}${consequenceOf(stored, observers)}`, of: 'system', range: { gte: stored, lte: stored } }
}

function consequenceOf(stored: Buffer, observers: RegisteredObservers): string {
  const name = nameOfSystem(stored)
  const kind = kindOf(name)
  if (kind === 'consumer' || kind === 'webhook') return ': it has to be registered again'
  if (kind === 'observer')
    return name.endsWith('/backfill') ? ': it has to be asked for again' : ': its notifications go with it'
  const id = kind !== undefined && isCellKind(kind) ? idOfCell(kind, name) : undefined
  if (kind === undefined || !isCellKind(kind) || id === undefined) return ''
  return `${REMEDIES[kind]} (observer ${observers.observerName(id) ?? 'unknown'})`
}

function spanOf({ gte, lte }: StoredRange): string {
  return `from ${gte === undefined ? 'the first' : placeName(gte)} to ${lte === undefined ? 'the last' : placeName(lte)}`
}

function clipped({ gte, lte }: StoredRange, prefix: number): StoredRange | undefined {
  if (gte !== undefined && (gte[0] ?? 0) > prefix) return undefined
  if (lte !== undefined && (lte[0] ?? 0) < prefix) return undefined
  return { gte: gte?.[0] === prefix ? gte : undefined, lte: lte?.[0] === prefix ? lte : undefined }
}

function clippedTo({ gte, lte }: StoredRange, place: EngineRange): StoredRange | undefined {
  if (gte !== undefined && gte.compare(place.lt) >= 0) return undefined
  if (lte !== undefined && lte.compare(place.gte) < 0) return undefined
  const isFrom = gte !== undefined && gte.compare(place.gte) > 0
  const isTo = lte !== undefined && lte.compare(place.lt) < 0
  return { gte: isFrom ? gte : undefined, lte: isTo ? lte : undefined }
}

/** The range of the same user keys in another column family. */
function moved({ gte, lte }: StoredRange, prefix: number): [gte: Buffer, lt: Buffer] {
  const tail = (bound: Buffer): Buffer => wholeKeyOf(bound).subarray(1)
  return [
    Buffer.concat([Buffer.of(prefix), gte === undefined ? Buffer.alloc(0) : tail(gte)]),
    lte === undefined ? Buffer.of(prefix + 1) : Buffer.concat([Buffer.of(prefix), tail(lte), Buffer.of(0)]),
  ]
}

function wholeKeyOf(bound: Buffer): Buffer {
  for (let at = isOfServer(bound) ? 18 : 9; at < bound.length; at += 9)
    if (bound[at] !== 0xff) return bound.subarray(0, at + 1)
  return bound
}

export function holds(range: StoredRange, stored: Buffer): boolean {
  return (range.gte?.compare(stored) ?? 0) <= 0 && (range.lte?.compare(stored) ?? 0) >= 0
}
