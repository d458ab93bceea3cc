import { createHmac, timingSafeEqual } from 'node:crypto'
import { Packr } from 'msgpackr/pack'
import { invalid } from '../../errors/kv-error.js'
import type { Timestamp } from '../../timestamp.js'

export interface Cursor {
  readonly ts: Timestamp
  readonly start: Uint8Array | undefined
  readonly end: Uint8Array | undefined
  readonly reverse: boolean
  readonly keyOnly: boolean
  readonly limit: number
  /** Last key of the previous page. */
  readonly after: Uint8Array
  /** For a scan in a transaction: see `InteractiveTransactions.scanPage`. */
  readonly scan?: number | undefined
}

const packr = new Packr({ useRecords: false, moreTypes: false, int64AsType: 'number' })
const MAC_BYTES = 16

export type ListName = 'parked' | 'leases' | 'observers' | 'consumers' | 'webhooks' | 'pins'

/** Keeps a cursor of one call from being used in another. Cursors of scans have had no purpose from the beginning. */
type Purpose = '' | ListName

export function encodeCursor(cursor: Cursor, secret: Uint8Array): string {
  const { ts, start, end, reverse, keyOnly, limit, after, scan } = cursor
  const fields = [ts, start ?? null, end ?? null, reverse, keyOnly, limit, after]
  return sealed(scan === undefined ? fields : [...fields, scan], '', secret)
}

export function decodeCursor(text: string, secret: Uint8Array): Cursor {
  const [ts, start, end, reverse, keyOnly, limit, after, scan] = opened(text, '', secret) as CursorFields
  return { ts, start: start ?? undefined, end: end ?? undefined, reverse, keyOnly, limit, after, scan }
}

type CursorFields = [Timestamp, Uint8Array | null, Uint8Array | null, boolean, boolean, number, Uint8Array, number?]

export interface ListCursor<Place extends string | Uint8Array> {
  /** Prefix of the list, or the name of an observer. */
  readonly of: string
  readonly limit: number
  /** Last name or key of the previous page. */
  readonly after: Place
}

export function encodeListCursor<Place extends string | Uint8Array>(
  list: ListName,
  { of, limit, after }: ListCursor<Place>,
  secret: Uint8Array,
): string {
  return sealed([of, limit, after], list, secret)
}

export function decodeListCursor<Place extends string | Uint8Array>(
  list: ListName,
  text: string,
  secret: Uint8Array,
): ListCursor<Place> {
  const [of, limit, after] = opened(text, list, secret) as [string, number, Place]
  return { of, limit, after }
}

function sealed(fields: readonly unknown[], purpose: Purpose, secret: Uint8Array): string {
  const body = packr.pack(fields)
  return Buffer.concat([mac(body, purpose, secret), body]).toString('base64url')
}

function opened(text: string, purpose: Purpose, secret: Uint8Array): unknown {
  const bytes = Buffer.from(text, 'base64url')
  const body = bytes.subarray(MAC_BYTES)
  const isOurs =
    bytes.toString('base64url') === text &&
    bytes.length > MAC_BYTES &&
    timingSafeEqual(bytes.subarray(0, MAC_BYTES), mac(body, purpose, secret))
  if (!isOurs) throw invalid('cursor', 'the cursor was not made by this server')
  return packr.unpack(body)
}

function mac(body: Uint8Array, purpose: Purpose, secret: Uint8Array): Buffer {
  return createHmac('sha256', secret).update(purpose).update(body).digest().subarray(0, MAC_BYTES)
}
