/** `ValueEncoding` of the protocol. */
export const ENCODING = { v8: 1, le64: 2, bytes: 3 } as const

export interface KvValue {
  readonly data: Uint8Array
  readonly encoding: number
}

const LE64_BYTES = 8

export function isValid({ encoding, data }: KvValue): boolean {
  if (encoding === ENCODING.le64) return data.length === LE64_BYTES
  return encoding === ENCODING.v8 || encoding === ENCODING.bytes
}

/** One byte of encoding, then the data. */
export function storedValue({ data, encoding }: KvValue): Uint8Array {
  const stored = Buffer.allocUnsafe(1 + data.length)
  stored[0] = encoding
  stored.set(data, 1)
  return stored
}

/** A value that was not written by this protocol may lack the byte of encoding. It is read as bytes. */
export function kvValueOf(stored: Uint8Array = NOTHING): KvValue {
  const value = { encoding: stored[0] ?? 0, data: stored.subarray(1) }
  return isValid(value) ? value : { encoding: ENCODING.bytes, data: stored }
}

const NOTHING = new Uint8Array()
