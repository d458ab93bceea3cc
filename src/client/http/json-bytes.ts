/** A byte string in JSON: text, or base64 where it is not UTF-8. */
export type JsonBytes = string | { readonly base64: string }

const encoder = new TextEncoder()

export function bytesOf(json: JsonBytes): Uint8Array {
  return typeof json === 'string' ? encoder.encode(json) : fromBase64(json.base64)
}

/** Works in browsers, which lack Buffer. */
function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
}
