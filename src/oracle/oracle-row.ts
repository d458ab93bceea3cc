import { jsonFields } from '../bytes/json-fields.js'
import type { Timestamp } from '../timestamp.js'

export interface OracleRow {
  /**
   * Strongly consistent: shows every change that had ended when the read began.
   * @returns undefined when the row has never been written. Rejects when the table cannot be reached.
   */
  read(): Promise<Uint8Array | undefined>
  /**
   * Writes `next` if the row still holds exactly `expected`, or does not exist if that is undefined.
   * @param withinMs nobody waits for the outcome any longer. Default: as long as the table gives a change.
   * @returns `unknown` when the write may or may not have landed, or may still land later.
   */
  swap(expected: Uint8Array | undefined, next: Uint8Array, withinMs?: number): Promise<SwapOutcome>
}

export type SwapOutcome = 'done' | 'refused' | 'unknown'

/**
 * No two writes of the row are equal, and each is newer than the one before: see `isNewer`. A late write therefore
 * meets another value and is refused.
 */
export interface OracleRecord {
  /** Grows by one whenever a process begins to lead, even another process of the same server. */
  readonly epoch: number
  /** URL of the leader; empty after it has stopped cleanly. */
  readonly url: string
  /**
   * Names the leading process. A process restarted under the same URL does not know what the earlier one handed out.
   */
  readonly id: string
  /** Exclusive upper bound of all timestamps of this epoch. */
  readonly mark: Timestamp
  readonly beat: number
}

const URL_LENGTH_MAX = 2048
const ID_LENGTH_MAX = 128
const NAMES = ['epoch', 'url', 'id', 'mark', 'beat']

export function encodeOracleRecord({ epoch, url, id, mark, beat }: OracleRecord): Uint8Array {
  return new TextEncoder().encode(JSON.stringify({ epoch, url, id, mark, beat }))
}

export function decodeOracleRecord(bytes: Uint8Array): OracleRecord {
  const record: object = jsonFields(bytes)
  if (!isRecord(record)) throw new Error("the oracle's row is damaged")
  return record
}

function isRecord(value: object): value is OracleRecord {
  const { epoch, url, id, mark, beat } = value as Partial<Record<keyof OracleRecord, unknown>>
  return (
    Object.keys(value).every((name) => NAMES.includes(name)) &&
    isCount(epoch) &&
    epoch > 0 &&
    isCount(mark) &&
    isCount(beat) &&
    typeof url === 'string' &&
    url.length <= URL_LENGTH_MAX &&
    typeof id === 'string' &&
    id.length <= ID_LENGTH_MAX
  )
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

export function isNewer(one: OracleRecord, other: OracleRecord): boolean {
  return one.epoch > other.epoch || (one.epoch === other.epoch && one.beat > other.beat)
}
