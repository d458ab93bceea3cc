import { useEffect, useState } from 'preact/hooks'
import { afterPrefix } from '../bytes/key-range.js'
import type { ListPage } from './list-page.js'
import { bytesOf, slicesOf } from './read-past-locks.js'
import type { Server } from './server.js'
import { useSession } from './session.js'
import { idOf, jsonBytes, readableSize, type WireBytes } from './wire-bytes.js'

/** What is below a folder, as far as it was read. */
export interface FolderSum {
  readonly keys: number
  /** Of keys and values. */
  readonly bytes: number
  /** The newest commit_ts. */
  readonly newest: number
  readonly isMore: boolean
}

const KEYS_MAX = 5000
const BYTES_MAX = 1024 * 1024

/** Reads a folder up to a bound of keys and of bytes. */
async function sumOf(server: Server, folder: WireBytes, ts: number, signal: AbortSignal): Promise<FolderSum> {
  const start = jsonBytes(folder)
  const end = afterPrefix(start)
  let sum: FolderSum = { keys: 0, bytes: 0, newest: 0, isMore: false }
  for await (const { pairs, next } of slicesOf(server, { start, end, ts, keyOnly: false }, signal)) {
    const newest = pairs.reduce((max, { commit_ts }) => Math.max(max, commit_ts), sum.newest)
    sum = { keys: sum.keys + pairs.length, bytes: sum.bytes + bytesOf(pairs), newest, isMore: next !== undefined }
    if (sum.keys >= KEYS_MAX || sum.bytes >= BYTES_MAX) break
  }
  return sum
}

/** The sums of the folders on a page, one after the other. */
export function useFolderSums(page: ListPage | undefined): ReadonlyMap<string, FolderSum> {
  const { server } = useSession()
  const [sums, setSums] = useState<ReadonlyMap<string, FolderSum>>(new Map())
  useEffect(() => {
    setSums(new Map())
    if (page === undefined) return
    const stop = new AbortController()
    const run = async (): Promise<void> => {
      for (const { key, pair } of page.entries) {
        if (pair !== undefined) continue
        const sum = await sumOf(server, key, page.ts, stop.signal)
        if (stop.signal.aborted) return
        setSums((before) => new Map(before).set(idOf(key), sum))
      }
    }
    run().catch(() => {}) // The folders are shown without sums then.
    return () => stop.abort()
  }, [server, page])
  return sums
}

export function readableSum({ keys, bytes, isMore }: FolderSum): string {
  const count = `${keys.toLocaleString('en')} ${keys === 1 ? 'key' : 'keys'}, ${readableSize(bytes)}`
  return isMore ? `more than ${count}` : count
}
