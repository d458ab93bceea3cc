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
}

const packr = new Packr({ useRecords: false, moreTypes: false, int64AsType: 'number' })
const MAC_BYTES = 16

export function encodeCursor(cursor: Cursor, secret: Uint8Array): string {
  const { ts, start, end, reverse, keyOnly, limit, after } = cursor
  const body = packr.pack([ts, start ?? null, end ?? null, reverse, keyOnly, limit, after])
  return Buffer.concat([mac(body, secret), body]).toString('base64url')
}

/** @throws KvError `invalid_argument` for a text that `encodeCursor` did not make with this secret. */
export function decodeCursor(text: string, secret: Uint8Array): Cursor {
  const bytes = Buffer.from(text, 'base64url')
  const body = bytes.subarray(MAC_BYTES)
  const isOurs =
    bytes.toString('base64url') === text &&
    bytes.length > MAC_BYTES &&
    timingSafeEqual(bytes.subarray(0, MAC_BYTES), mac(body, secret))
  if (!isOurs) throw invalid('cursor', 'the cursor was not made by this server')
  const [ts, start, end, reverse, keyOnly, limit, after] = packr.unpack(body)
  return { ts, start: start ?? undefined, end: end ?? undefined, reverse, keyOnly, limit, after }
}

function mac(body: Uint8Array, secret: Uint8Array): Buffer {
  return createHmac('sha256', secret).update(body).digest().subarray(0, MAC_BYTES)
}
