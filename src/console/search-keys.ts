import { afterKey } from '../bytes/key-range.js'
import { readSlice, slicesOf } from './read-past-locks.js'
import type { Server } from './server.js'
import { idOf, jsonBytes, shown, type WireBytes } from './wire-bytes.js'

/** How far a search has come. */
export interface Found {
  readonly text: string
  readonly prefix: WireBytes
  readonly end: Uint8Array | undefined
  /** undefined: now. */
  readonly ts: number | undefined
  /** Keys that the text names exactly, below the prefix or as a whole. */
  readonly exact: readonly WireBytes[]
  /** Other keys that contain the text. */
  readonly keys: readonly WireBytes[]
  /** The number of keys that were read. */
  readonly read: number
  /** Where it goes on; undefined at the end. */
  readonly next: Uint8Array | undefined
}

/** One run ends after so many. */
const HITS_PER_RUN = 100
const KEYS_PER_RUN = 200_000

/** Reads keys in slices and yields what was found so far after each. Upper and lower case are the same. */
export async function* searchKeys(
  server: Server,
  before: Found,
  signal: AbortSignal,
): AsyncGenerator<Found, void, undefined> {
  const ts = before.ts ?? (await server.tso(signal))
  let found: Found = { ...before, ts }
  if (found.read === 0) {
    found = { ...found, exact: await exactOf(server, found, ts, signal) }
    yield found
  }
  const { text, next: start, end } = found
  if (start === undefined) return
  const hitsMax = found.keys.length + HITS_PER_RUN
  const readMax = found.read + KEYS_PER_RUN
  const part = text.toLowerCase()
  const exact = new Set(found.exact.map(idOf))
  const isHit = (key: WireBytes): boolean =>
    restOf(key, found.prefix).toLowerCase().includes(part) && !exact.has(idOf(key))
  for await (const { pairs, next } of slicesOf(server, { start, end, ts, keyOnly: true }, signal)) {
    const hits = pairs.map(({ key }) => key).filter(isHit)
    const room = hitsMax - found.keys.length
    const last = hits.length > room ? hits[room - 1] : undefined
    const read = found.read + pairs.length
    found = { ...found, keys: [...found.keys, ...hits.slice(0, room)], read }
    found = { ...found, next: last === undefined ? next : afterKey(jsonBytes(last)) }
    yield found
    if (found.keys.length >= hitsMax || found.read >= readMax) return
  }
}

function restOf(key: WireBytes, prefix: WireBytes): string {
  const text = shown(key)
  const known = shown(prefix)
  return text.startsWith(known) ? text.slice(known.length) : text
}

async function exactOf(
  server: Server,
  { text, prefix }: Found,
  ts: number,
  signal: AbortSignal,
): Promise<readonly WireBytes[]> {
  const below = typeof prefix === 'string' ? prefix + text : text
  const names = [...new Set([below, text])]
  const slices = names.map(async (name) => {
    const start = jsonBytes(name)
    // A token of prefixes may not be allowed to ask for the whole name.
    const asked = readSlice(server, { start, end: afterKey(start), ts, limit: 1, keyOnly: true }, signal)
    return asked.then(({ pairs }) => pairs).catch(() => [])
  })
  const keys = (await Promise.all(slices)).flat().map(({ key }) => key)
  return keys.filter((key, i) => keys.findIndex((other) => idOf(other) === idOf(key)) === i)
}
