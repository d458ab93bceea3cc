// From the start of the process to the first 200 of /readyz.
import { readdir } from 'node:fs/promises'
import { rssBytes } from '../proc.mjs'
import { kill, median, stop } from '../process.mjs'
import { key, value } from './data.mjs'
import { diskBytes } from './disk.mjs'
import { fill } from './fill.mjs'
import { post, timestamp } from './post.mjs'
import { startPerkv, withDirectory, withPerkvOn } from './servers.mjs'

const LOCKS_A_REQUEST = 1000
/** Rewritten before a kill -9, so that there is a log to replay. */
const REWRITTEN = 10_000

/** @param context.data a directory of the measurement `keys`, or an empty one, which is filled. */
export async function startup({ data, keysMax, locks, rounds }) {
  if ((await readdir(data).catch(() => [])).length === 0) await withPerkvOn(data, (server) => fill(server, 0, keysMax))
  const keys = await withPerkvOn(data, countKeys)
  const rewrite = (server) => fill(server, 0, Math.min(keys, REWRITTEN))
  const rows = [
    ...(await withDirectory(async (empty) => [await measure('empty', empty, { rounds })])),
    await measure(`${keys.toLocaleString('en-US')} keys, stopped`, data, { rounds }),
    await measure(`${keys.toLocaleString('en-US')} keys, kill -9`, data, { rounds, before: rewrite, end: kill }),
    ...(await withDirectory(async (locked) => {
      await leaveLocks(locked, locks)
      const name = `${locks.toLocaleString('en-US')} locks, kill -9`
      return [await measure(name, locked, { rounds, end: kill, check: (server) => expectLocks(server, locks) })]
    })),
  ]
  return { settings: { rounds, file_cache: 'warm' }, rows }
}

/** @param end how the server before it ended. @param before what that one did last. @param check of each start. */
async function measure(name, data, { rounds, before, check, end = stop }) {
  const times = []
  let rss = 0
  for (let round = 0; round <= rounds; round++) {
    const start = performance.now()
    const server = await startPerkv(data)
    try {
      const { status } = await fetch(`${server.url}/readyz`)
      if (status !== 200) throw new Error(`/readyz: ${status}`)
      if (round > 0) times.push(performance.now() - start) // The first one finds nothing that an earlier one left.
      rss = rssBytes(server)
      await check?.(server)
      await before?.(server)
    } finally {
      await end(server)
    }
  }
  return {
    directory: name,
    ready_ms: median(times),
    min_ms: Math.min(...times),
    max_ms: Math.max(...times),
    rss_mb: rss / 1e6,
    disk_mb: (await diskBytes(data)) / 1e6,
  }
}

async function leaveLocks(data, locks) {
  const server = await startPerkv(data)
  try {
    const start_ts = await timestamp(server)
    for (let from = 0; from < locks; from += LOCKS_A_REQUEST) {
      const mutations = Array.from({ length: Math.min(LOCKS_A_REQUEST, locks - from) }, (_, i) => ({
        op: 'put',
        key: key(from + i),
        value: value(),
      }))
      await post(server, '/v1/percolator/prewrite', { mutations, primary: key(0), start_ts, lock_ttl: 3_600_000 })
    }
  } finally {
    await kill(server)
  }
}

async function expectLocks(server, locks) {
  const { counts } = await (await fetch(`${server.url}/v1/status`)).json()
  if (counts.locks !== locks) throw new Error(`${counts.locks} locks after the restart, not ${locks}`)
}

/** The keys are numbered without a gap, so that a few reads find the last one. */
async function countKeys(server) {
  const isThere = async (i) => (await fetch(`${server.url}/v1/kv/${key(i)}`)).status === 200
  let [low, high] = [0, 1]
  while (await isThere(high - 1)) [low, high] = [high, high * 2]
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2)
    if (await isThere(middle - 1)) low = middle
    else high = middle
  }
  return low
}
