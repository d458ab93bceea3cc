/**
 * Prefix of the server's own rows in transactions, `00 00 perkv/`; keys of users must not begin with it. The rows are outcomes
 * of Idempotency-Keys and, in a store that many servers share, acknowledgements and notifications of observers.
 */
export const RESERVED_PREFIX: Uint8Array = Uint8Array.from('\0\0perkv/', (character) => character.charCodeAt(0))

export function isReserved(key: Uint8Array): boolean {
  return key[0] === 0 && RESERVED_PREFIX.every((byte, i) => key[i] === byte)
}
