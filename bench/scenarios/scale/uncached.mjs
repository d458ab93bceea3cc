// Reads that no cache of versions answers, by the size of LevelDB's cache of blocks, with and without compression.
import { settle } from '../../harness/disk.mjs'
import { load } from '../../harness/load.mjs'
import { median, percentile } from '../../harness/numbers.mjs'
import { fill, startPerkv } from '../../harness/perkv.mjs'
import { makeDirectory, rssBytes } from '../../harness/process.mjs'
import { whole } from '../../harness/report.mjs'
import { inTurn, metered } from '../../harness/rounds.mjs'
import { uniform } from './requests.mjs'

const CONTENDERS = [
  { mib: 8, compression: 'snappy' },
  { mib: 64, compression: 'snappy' },
  { mib: 256, compression: 'snappy' },
  { mib: 8, compression: 'none' },
]

export const uncached = {
  full: { keys: 1_000_000, rounds: 7, seconds: 2 },
  quick: { keys: 20_000, rounds: 1, seconds: 0.5 },
  async run({ keys, ...turns }) {
    const servers = []
    for (const { mib, compression } of CONTENDERS) {
      const flags = ['--block-cache-bytes', String(mib * 2 ** 20), '--compression', compression]
      const server = await startPerkv(makeDirectory(), '--cache-bytes-max', '0', ...flags)
      servers.push(server)
      await fill(server, 0, keys)
      await settle(server)
    }
    const request = () => uniform.get(keys)
    const contender = (server) => (seconds) => metered(server, () => load({ url: server.url, seconds, request }))
    const results = await inTurn(Object.fromEntries(servers.map((server, i) => [i, contender(server)])), turns)
    return CONTENDERS.map(({ mib, compression }, i) => {
      const micros = results[i].map(({ cpu }) => cpu.all)
      return {
        '`--block-cache-bytes`': `${mib} MiB`,
        '`--compression`': `\`${compression}\``,
        'µs per GET, quartile': percentile(micros, 0.25),
        median: median(micros),
        'resident, MB': rssBytes(servers[i]) / 1e6,
      }
    })
  },
  tell: ({ settings: { keys }, blocks }) => [
    '### Uncached reads',
    `${whole(keys)} keys are read at random, by the size of LevelDB's cache of blocks ([what to set](operations.md#uncached-reads)). The processor time is that of all threads.`,
    ...blocks,
  ],
}
