import { keyText } from '../../../bytes/key-text.js'

/** What is told when a row was written and has no lock now. */
export function keyTopic(key: Uint8Array): string {
  return `key/${keyText(key)}`
}
