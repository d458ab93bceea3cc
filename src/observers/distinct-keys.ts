import { keyText } from '../bytes/key-text.js'
import { Slices } from '../event-loop/slices.js'

export async function distinctKeys(keys: readonly Uint8Array[]): Promise<Uint8Array[]> {
  const found = new Map<string, Uint8Array>()
  const slices = new Slices()
  for (const key of keys) {
    const pause = slices.next()
    if (pause !== undefined) await pause
    found.set(keyText(key), key)
  }
  return [...found.values()]
}
