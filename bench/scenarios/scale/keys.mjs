// What more keys cost. One directory grows; each size has a server process of its own, so that its memory is its own.
import { diskBytes } from '../../harness/disk.mjs'
import { load } from '../../harness/load.mjs'
import { fill, PUTS_PER_TXN, withPerkvOn } from '../../harness/perkv.mjs'
import { kill, makeDirectory, rssBytes } from '../../harness/process.mjs'
import { uniform } from './requests.mjs'
import { startRow } from './startup.mjs'

const WARM_UP_S = 1
/** Rewritten before a kill -9, so that there is a log to replay. */
const REWRITTEN = 10_000

export const keys = {
  full: { sizes: [10_000, 100_000, 1_000_000, 10_000_000], seconds: 4, starts: 3 },
  quick: { sizes: [1000, 20_000], seconds: 0.5, starts: 1 },
  async run({ sizes, seconds, starts }) {
    const data = makeDirectory()
    const rows = []
    for (const [i, size] of sizes.entries())
      rows.push(await withPerkvOn(data, [], (server) => measure(server, { from: sizes[i - 1] ?? 0, size, seconds })))
    const name = `${sizes.at(-1).toLocaleString('en-US')} keys`
    const rewrite = (server) => fill(server, 0, Math.min(sizes.at(-1), REWRITTEN))
    const started = [
      await startRow(name, data, { starts }),
      await startRow(`${name}, after kill -9`, data, { starts, before: rewrite, end: kill }),
    ]
    return { blocks: [rows, started] }
  },
  tell: ({ blocks }) => [
    '### Keys',
    `Keys are loaded by \`POST /v1/txn\` with ${PUTS_PER_TXN} puts (MessagePack, four in flight), then read and written at random. At ten million most memory is mapped table files, which the system takes back.`,
    ...blocks,
  ],
}

async function measure(server, { from, size, seconds }) {
  const loadRate = await fill(server, from, size)
  const [disk, rssLoaded] = [await diskBytes(server.data), rssBytes(server)]
  const gets = await warmed(server, () => uniform.get(size), seconds)
  const rssRead = rssBytes(server)
  const puts = await warmed(server, () => uniform.put(size), seconds)
  return {
    keys: size,
    'load, keys/s': loadRate,
    'GET/s': gets.rate,
    'p99, ms': gets.p99,
    'PUT/s': puts.rate,
    'p99 of PUTs, ms': puts.p99,
    'on disk after the load, MB': disk / 1e6,
    'RSS after the load, MB': rssLoaded / 1e6,
    'RSS after the GETs, MB': rssRead / 1e6,
  }
}

async function warmed({ url }, request, seconds) {
  await load({ url, request, seconds: Math.min(seconds, WARM_UP_S) })
  return load({ url, request, seconds })
}
