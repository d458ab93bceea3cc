// From the start of the process to the first 200 of /readyz, with files in the system's cache.
import { diskBytes } from '../../harness/disk.mjs'
import { median } from '../../harness/numbers.mjs'
import { keyOf, valueAt } from '../../harness/payload.mjs'
import { PUTS_PER_TXN, startPerkv, statusOf, timestamp } from '../../harness/perkv.mjs'
import { kill, makeDirectory, rssBytes, stop } from '../../harness/process.mjs'
import { postJson } from '../../harness/requests.mjs'

export const startup = {
  full: { locks: 100_000, starts: 11 },
  quick: { locks: 2000, starts: 1 },
  async run({ locks, starts }) {
    const data = makeDirectory()
    await leaveLocks(data, locks)
    const check = async (server) => {
      const { counts } = await statusOf(server)
      if (counts.locks !== locks) throw new Error(`${counts.locks} locks after the restart, not ${locks}`)
    }
    return [
      await startRow('empty', makeDirectory(), { starts }),
      await startRow(`${locks.toLocaleString('en-US')} locks, after kill -9`, data, { starts, end: kill, check }),
    ]
  },
  tell: ({ blocks }) => [
    '### Start-up',
    'From the start of the process to the first answer of `/readyz`, files cached by the system:',
    ...blocks,
  ],
}

/** @param end how the server before it ended. @param before what that one did last. @param check of each start. */
export async function startRow(directory, data, { starts, before, check, end = stop }) {
  const times = []
  let rss = 0
  for (let round = 0; round <= starts; round++) {
    const since = performance.now()
    const server = await startPerkv(data)
    const { status } = await fetch(`${server.url}/readyz`)
    if (status !== 200) throw new Error(`/readyz: ${status}`)
    if (round > 0) times.push(performance.now() - since) // The first one finds nothing that an earlier one left.
    rss = rssBytes(server)
    await check?.(server)
    await before?.(server)
    await end(server)
  }
  return {
    directory,
    'ready after, ms': median(times),
    shortest: Math.min(...times),
    longest: Math.max(...times),
    'RSS, MB': rss / 1e6,
    'on disk, MB': (await diskBytes(data)) / 1e6,
  }
}

async function leaveLocks(data, locks) {
  const server = await startPerkv(data)
  const start_ts = await timestamp(server)
  for (let from = 0; from < locks; from += PUTS_PER_TXN) {
    const mutations = Array.from({ length: Math.min(PUTS_PER_TXN, locks - from) }, (_, i) => ({
      ...{ op: 'put', key: keyOf(from + i), value: valueAt(from + i) },
    }))
    const order = { mutations, primary: keyOf(0), start_ts, lock_ttl: 3_600_000 }
    await server.call(postJson('/v1/percolator/prewrite', order))
  }
  await kill(server)
}
