const UNRESERVED = /[\w.~-]/

export function percentEncode(bytes: Uint8Array): string {
  let text = ''
  for (const byte of bytes) {
    const character = String.fromCharCode(byte)
    const isPlain = byte < 0x80 && UNRESERVED.test(character)
    text += isPlain ? character : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
  }
  return text
}

/**
 * The path of one key; undefined for the keys `.` and `..`, which have none: URL parsers resolve them as path segments, escaped
 * or not.
 */
export function keyPath(key: Uint8Array): string | undefined {
  const encoded = percentEncode(key)
  return encoded === '.' || encoded === '..' ? undefined : `/v1/kv/${encoded}`
}
