import type { Shape } from './answer-shape.js'

export type JsonBytes = string | { readonly base64: string }

export const JSON_BYTES: Shape = (value) =>
  typeof value === 'string' || (typeof value === 'object' && value !== null && isBase64((value as Base64).base64))

interface Base64 {
  readonly base64?: unknown
}

function isBase64(text: unknown): boolean {
  return typeof text === 'string' && text.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(text)
}

const encoder = new TextEncoder()

export function jsonBytes(json: JsonBytes): Uint8Array {
  return typeof json === 'string' ? encoder.encode(json) : fromBase64(json.base64)
}

/** For browsers, which lack Buffer. */
function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
}
