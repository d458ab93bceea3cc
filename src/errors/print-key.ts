const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

export function printKey(key: Uint8Array): string {
  try {
    const text = utf8.decode(key)
    if (!/\p{C}/u.test(text)) return JSON.stringify(text)
  } catch {}
  return `0x${Array.from(key, (byte) => byte.toString(16).padStart(2, '0')).join('')}`
}
