import { afterPrefix } from '../bytes/key-range.js'
import type { ListPage } from './list-page.js'
import { bytesOf, slicesOf } from './read-past-locks.js'
import type { Server } from './server.js'
import { useSession } from './session.js'
import { useArriving } from './use-arriving.js'
import { idOf, jsonBytes, readableSize, type WireBytes } from './wire-bytes.js'

/** What is below a folder, as far as it was read. */
export interface FolderSum {
  readonly keys: number
  /** Of keys and values; undefined: values were not read. */
  readonly bytes: number | undefined
  /** The newest commit_ts. */
  readonly newest: number
  readonly isMore: boolean
}

const KEYS_MAX = 5000
const BYTES_MAX = 1024 * 1024
/** Long values after many short ones take the sum beyond its bound by no more than these. */
const PAIRS_AT_ONCE = 128
/** Once the folders of a page have cost so much, values are not read any more. */
const PAGE_BYTES_MAX = 8 * 1024 * 1024

interface Folder {
  readonly key: WireBytes
  readonly ts: number
  readonly keyOnly: boolean
}

/** Reads a folder up to a bound of keys and of bytes. */
async function sumOf(server: Server, { key, ts, keyOnly }: Folder, signal: AbortSignal): Promise<FolderSum> {
  const start = jsonBytes(key)
  let [keys, bytes, newest, isMore] = [0, 0, 0, false]
  const range = { start, end: afterPrefix(start), ts, keyOnly }
  for await (const { pairs, next } of slicesOf(server, range, signal, keyOnly ? undefined : PAIRS_AT_ONCE)) {
    keys += pairs.length
    bytes += bytesOf(pairs)
    newest = pairs.reduce((max, { commit_ts }) => Math.max(max, commit_ts), newest)
    isMore = next !== undefined
    if (keys >= KEYS_MAX || bytes >= BYTES_MAX) break
  }
  return { keys, bytes: keyOnly ? undefined : bytes, newest, isMore }
}

/** The sums of the folders on a page, one after the other. */
export function useFolderSums(page: ListPage | undefined): ReadonlyMap<string, FolderSum> {
  const { server } = useSession()
  return useArriving<ListPage, FolderSum>(
    page,
    async ({ entries, ts }, add, signal) => {
      let read = 0
      for (const { key, pair } of entries) {
        if (pair !== undefined) continue
        const sum = await sumOf(server, { key, ts, keyOnly: read >= PAGE_BYTES_MAX }, signal)
        if (signal.aborted) return
        read += sum.bytes ?? 0
        add(new Map([[idOf(key), sum]]))
      }
    },
    [server],
  )
}

export function readableSum({ keys, bytes, isMore }: FolderSum): string {
  const count = `${keys.toLocaleString('en')} ${keys === 1 ? 'key' : 'keys'}`
  const size = bytes === undefined ? '' : `, ${readableSize(bytes)}`
  return `${isMore ? 'more than ' : ''}${count}${size}`
}
