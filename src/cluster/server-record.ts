import { jsonFields } from '../bytes/json-fields.js'
import type { Timestamp } from '../timestamp.js'

/**
 * The content of a server's row. Every write of a row differs from the others, so a change that lands late meets another value
 * and is refused.
 */
export interface ServerRecord {
  readonly url: string
  /** A lower bound of every snapshot that the server reads, now or later. */
  readonly oldest: Timestamp
  /** How high the server may raise the safe point, or has raised it; 0: it has not. */
  readonly safePoint: Timestamp
  /** Epoch of the leader of the timestamps that the server cannot reach; 0: none. */
  readonly unreachedEpoch: number
  /** The newest format of the table that the server knows. */
  readonly format: number
  /** The server goes by the time of a leader. */
  readonly knowsTime: boolean
  /** Grows with each write of one process. */
  readonly beat: number
}

export interface JobRecord {
  readonly id: string
  readonly beat: number
}

const URL_LENGTH_MAX = 2048
const ID_LENGTH_MAX = 128
/** Of servers that do not say which they know. */
const FORMAT_DEFAULT = 1

export function encodeServer(record: ServerRecord): Uint8Array {
  const { url, oldest, safePoint, unreachedEpoch, knowsTime, format, beat } = record
  const ofLeader = { unreached_epoch: unreachedEpoch, knows_time: knowsTime }
  return encode({ url, oldest, safe_point: safePoint, ...ofLeader, format, beat })
}

export function decodeServer(bytes: Uint8Array): ServerRecord | undefined {
  const fields = jsonFields(bytes)
  const { url, oldest, safe_point: safePoint, beat } = fields
  const { unreached_epoch: unreachedEpoch = 0, format = FORMAT_DEFAULT } = fields
  if (typeof url !== 'string' || url.length > URL_LENGTH_MAX || !URL.canParse(url)) return undefined
  const knowsTime = fields['knows_time'] === true
  return isCount(oldest) && isCount(safePoint) && isCount(unreachedEpoch) && isCount(format) && isCount(beat)
    ? { url, oldest, safePoint, unreachedEpoch, knowsTime, format, beat }
    : undefined
}

export function encodeJob({ id, beat }: JobRecord): Uint8Array {
  return encode({ id, beat })
}

export function decodeJob(bytes: Uint8Array): JobRecord | undefined {
  const { id, beat } = jsonFields(bytes)
  return typeof id === 'string' && id.length <= ID_LENGTH_MAX && isCount(beat) ? { id, beat } : undefined
}

function encode(fields: object): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(fields))
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}
