import { jsonFields } from '../../../bytes/json-fields.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import type { Timestamp } from '../../../timestamp.js'
import { certainChange } from '../layout/certain-change.js'
import { RECORD } from '../layout/layout.js'
import { recordAt } from '../layout/record-at.js'
import { rowKeyOfSystem } from '../layout/row-keys.js'
import type { Table } from '../layout/table.js'
import { UnusableTable } from '../layout/unusable-table.js'

/** A layout of the table's rows. */
export interface TableFormat {
  readonly format: number
  /** The first version of PerKV that serves it. */
  readonly program: string
}

/** Tables from before there was a row have this format. */
export const FIRST_FORMAT: TableFormat = { format: 1, program: '0.3.0' }
/**
 * The newest format that this program serves. It serves all older ones too.
 *
 * A program begins to write format N four seconds after it has seen N in the row, when every server has seen it or has to ask. A
 * change of an older program that was on its way then lands on the row as it was read, in the older layout, or not at all: so N
 * must read that.
 */
export const NEWEST_FORMAT: TableFormat = { format: 2, program: '0.3.0' }
/** From this format on revisions say how much a row holds, and what was removed of some kinds of records leaves something. */
export const SIZES_FORMAT = 2
/** From this format on all servers log their commits once there is a reader: no release served it without. */
export const FEED_FORMAT = 2

/** The table lacks what its servers had committed, as after a failover to a replica that came too late. */
export interface FoundLoss {
  readonly why: string
  /** Nothing shows that commits are lost, nor that they were kept: no server starts, and those that have looked themselves go on. */
  readonly isDoubt: boolean
}

export interface TableLoss extends FoundLoss {
  /** Above all timestamps that the servers knew which have found it. */
  readonly mark: Timestamp
  /** The newest epoch of the oracle that they knew. */
  readonly epoch: number
}

/** The row `00 00 format`. Every later format keeps these fields. A program that adds one raises the format. */
export interface FormatRecord extends TableFormat {
  /** Bigtable's cluster that every server has to use; absent: no server knew it yet. */
  readonly cluster?: string | undefined
  /** No server starts to serve the table. */
  readonly lost?: TableLoss | undefined
  /** All timestamps since the last loss was accepted are above it. */
  readonly accepted?: Timestamp | undefined
  /** Grows with each change, so the row never has the same value twice. */
  readonly turn: number
}

/** What a program brings along to a table. */
export interface Serving {
  /** Address of the table, for people. */
  readonly place: string
  readonly newest: TableFormat
  /** Of a table without the row. Default: `FIRST_FORMAT`. */
  readonly first?: TableFormat | undefined
  /** Bigtable's cluster that this program's app profile routes to; absent: it is unknown. */
  readonly cluster?: string | undefined
}

export const FORMAT_KEY = rowKeyOfSystem('format')
const TRIES_MAX = 10

/** @internal */
export function encodeFormat({ format, program, cluster, turn, lost, accepted }: FormatRecord): Buffer {
  return Buffer.from(JSON.stringify({ format, program, cluster, turn, lost, accepted }))
}

/** @throws CorruptRecord */
export function decodeFormat(bytes: Uint8Array): FormatRecord {
  const { format, program, cluster, turn, lost, accepted } = jsonFields(bytes)
  const isSound =
    (cluster === undefined || isName(cluster)) &&
    (lost === undefined || isLoss(lost)) &&
    (accepted === undefined || isNatural(accepted))
  if (!isCount(format) || !isCount(turn) || !isName(program) || !isSound)
    throw new CorruptRecord('the record of the format is damaged')
  return { format, program, cluster, turn, lost, accepted }
}

function isLoss(value: unknown): value is TableLoss {
  if (typeof value !== 'object' || value === null) return false
  const { why, mark, epoch, isDoubt } = value as Partial<Record<keyof TableLoss, unknown>>
  return (
    typeof isDoubt === 'boolean' &&
    typeof why === 'string' &&
    /^[\x20-\x7e]{1,512}$/.test(why) &&
    isNatural(mark) &&
    isNatural(epoch)
  )
}

function isNatural(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 1
}

/** Names stand in messages of one line. */
function isName(value: unknown): value is string {
  return typeof value === 'string' && /^[\w.+-]{1,64}$/.test(value)
}

/** @throws CorruptRecord; KvError `storage_unavailable`. @internal */
export async function readFormat(table: Table): Promise<FormatRecord | undefined> {
  const value = await recordAt(table, FORMAT_KEY)
  return value && decodeFormat(value)
}

/** As `readFormat`. @throws UnusableTable when the row is damaged; KvError `storage_unavailable` */
export function soundFormat(table: Table, { place }: Serving): Promise<FormatRecord | undefined> {
  return readFormat(table).catch((error: unknown) => {
    if (!(error instanceof CorruptRecord)) throw error
    throw new UnusableTable(`${place}: ${error.message}: run perkv store check`, { cause: error })
  })
}

/**
 * Changes the row unless somebody else has.
 * @returns undefined when somebody else was faster.
 * @throws KvError `storage_unavailable`: the row may or may not be changed.
 */
export async function changeFormat(
  table: Table,
  before: FormatRecord | undefined,
  change: Omit<FormatRecord, 'turn'>,
): Promise<FormatRecord | undefined> {
  const after = { ...change, turn: (before?.turn ?? 0) + 1 }
  const value = encodeFormat(after)
  const row = { family: 'o', qualifier: RECORD } as const
  const isDone = async () => (await recordAt(table, FORMAT_KEY))?.equals(value) ?? false
  const expected = before && encodeFormat(before)
  const isChanged = await certainChange(table, FORMAT_KEY, { ...row, value: expected }, [{ ...row, value }], {
    isDone,
  })
  return isChanged ? after : undefined
}

/** The reason, in one line, why a program must not go on serving a table; undefined: it may. */
export function misfitOf(record: FormatRecord, serving: Serving): string | undefined {
  const loss = record.lost?.isDoubt ? undefined : lossIn(record, serving)
  return newerFormat(record, serving) ?? otherCluster(record, serving) ?? loss
}

function lossIn({ lost }: FormatRecord, { place }: Serving): string | undefined {
  return lost && `${place}: ${printLoss(lost.why, place)}`
}

export function printLoss(why: string, place: string): string {
  return `${why}: see what is missing, then run perkv store accept '${place}'`
}

export function newerFormat({ format, program }: FormatRecord, { place, newest }: Serving): string | undefined {
  if (format <= newest.format) return undefined
  return `${place}: the table has format ${format}, written by a newer PerKV (${program} or later); this one reads up to ${newest.format}`
}

export function otherCluster({ cluster }: FormatRecord, { place, cluster: own }: Serving): string | undefined {
  if (cluster === undefined || own === undefined || cluster === own) return undefined
  return `${place}: the table is served from cluster ${cluster}, but this app profile routes to ${own}: give one that routes to ${cluster}, or stop all servers and run perkv bigtable move`
}

/**
 * Checks that this program may serve a table. Writes the row where it is missing, and the cluster where no server knew it.
 * @param isNew the table was made just now, so no older program serves it, and it gets the newest format.
 * @throws UnusableTable; KvError `storage_unavailable`
 */
export async function requireFit(table: Table, serving: Serving, isNew = false): Promise<FormatRecord> {
  const first = isNew ? serving.newest : (serving.first ?? FIRST_FORMAT)
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const found = await soundFormat(table, serving)
    const misfit = found && (misfitOf(found, serving) ?? lossIn(found, serving))
    if (misfit !== undefined) throw new UnusableTable(misfit)
    if (found !== undefined && (found.cluster !== undefined || serving.cluster === undefined)) return found
    const made = await changeFormat(table, found, { ...(found ?? first), cluster: serving.cluster })
    if (made !== undefined) return made
  }
  throw new UnusableTable(`${serving.place}: the record of the format cannot be written`)
}
