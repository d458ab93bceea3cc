import { afterPrefix } from '../bytes/key-range.js'
import type { Pair } from './answers.js'
import { bytesOf, readKeys, slicesOf } from './read-past-locks.js'
import type { Server } from './server.js'
import { jsonBytes, type WireBytes } from './wire-bytes.js'

const KEYS_AT_ONCE = 10
/** The file stands in the memory of the browser. */
const FILE_BYTES_MAX = 64 * 1024 * 1024

/** A line per key, as `GET /v1/kv` writes them. */
function ndjsonOf(pairs: readonly Pair[]): string {
  const lines = pairs.map(({ key, value, commit_ts, expire_ts, lease_fence }) =>
    JSON.stringify({ key, value, commit_ts, expire_ts, lease_fence }),
  )
  return lines.map((line) => `${line}\n`).join('')
}

export async function* pairsOfKeys(
  server: Server,
  keys: readonly WireBytes[],
  ts: number,
  signal: AbortSignal,
): AsyncGenerator<readonly Pair[], void, undefined> {
  for (let i = 0; i < keys.length; i += KEYS_AT_ONCE)
    yield await readKeys(server, keys.slice(i, i + KEYS_AT_ONCE), ts, signal)
}

export async function* pairsBelow(
  server: Server,
  prefix: WireBytes,
  ts: number,
  signal: AbortSignal,
): AsyncGenerator<readonly Pair[], void, undefined> {
  const start = jsonBytes(prefix)
  for await (const { pairs } of slicesOf(server, { start, end: afterPrefix(start), ts, keyOnly: false }, signal))
    yield pairs
}

/** Gives the pairs to the browser as a file. */
export async function download(
  slices: AsyncIterable<readonly Pair[]>,
  onProgress: (keys: number) => void,
): Promise<void> {
  const parts: string[] = []
  let [keys, bytes] = [0, 0]
  for await (const pairs of slices) {
    parts.push(ndjsonOf(pairs))
    keys += pairs.length
    bytes += bytesOf(pairs)
    if (bytes > FILE_BYTES_MAX) throw new Error('That is more than 64 MiB: use `perkv dump`, which has no bound.')
    onProgress(keys)
  }
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob(parts, { type: 'application/x-ndjson' }))
  link.download = 'keys.ndjson'
  link.click()
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000)
}
