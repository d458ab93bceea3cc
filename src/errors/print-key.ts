const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** A key in a message: text without control characters as it is, anything else as hex. */
export function printKey(key: Uint8Array): string {
  try {
    const text = utf8.decode(key)
    if (!/\p{C}/u.test(text)) return JSON.stringify(text)
  } catch {}
  return `0x${Array.from(key, (byte) => byte.toString(16).padStart(2, '0')).join('')}`
}
