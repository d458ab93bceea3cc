/** 16 random bytes in hex. Not crypto.randomUUID, which browsers lack on pages loaded over plain HTTP. */
export function newIdempotencyKey(): string {
  const random = crypto.getRandomValues(new Uint8Array(16))
  return Array.from(random, (byte) => byte.toString(16).padStart(2, '0')).join('')
}

export function requireIdempotencyKey(key: string): void {
  if (/^[\x20-\x7e]{1,255}$/.test(key) && key === key.trim()) return
  throw new TypeError('idempotencyKey must be 1 to 255 printable ASCII characters, without spaces around them')
}
