import { PER_MS } from './readable-time.js'

/** A moment as people give it: a timestamp of the server, or a time, of this place unless it says another. */
export function givenTs(text: string): number | undefined {
  const given = text.trim()
  if (/^\d+$/.test(given)) return Number.isSafeInteger(Number(given)) ? Number(given) : undefined
  const ms = Date.parse(given)
  return Number.isNaN(ms) || ms < 0 ? undefined : ms * PER_MS
}
