import { isUtf8 } from 'node:buffer'
import { asBuffer } from './key-text.js'

export function bytesAsJson(value: Uint8Array): string | { readonly base64: string } {
  const bytes = asBuffer(value)
  return isUtf8(bytes) ? bytes.toString('utf8') : { base64: bytes.toString('base64') }
}
