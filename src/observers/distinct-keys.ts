import { keyText } from '../bytes/key-text.js'
import { TimeSlicer } from '../event-loop/time-slicer.js'

export async function distinctKeys(keys: readonly Uint8Array[]): Promise<Uint8Array[]> {
  const found = new Map<string, Uint8Array>()
  const slicer = new TimeSlicer()
  for (const key of keys) {
    const pause = slicer.next()
    if (pause !== undefined) await pause
    found.set(keyText(key), key)
  }
  return [...found.values()]
}
