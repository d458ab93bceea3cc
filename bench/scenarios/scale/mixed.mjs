// Minutes of reads, writes and transactions, second by second: what compactions and collections of garbage do to them.
import { lines } from '../../chart/lines.mjs'
import { load } from '../../harness/load.mjs'
import { latenciesOf } from '../../harness/numbers.mjs'
import { random } from '../../harness/payload.mjs'
import { fill, withPerkv } from '../../harness/perkv.mjs'
import { rssBytes } from '../../harness/process.mjs'
import { whole } from '../../harness/report.mjs'
import { uniform } from './requests.mjs'

const WARM_UP_S = 5
const TOLERATED = [409, 423, 503]

export const mixed = {
  full: { keys: 1_000_000, seconds: 600 },
  quick: { keys: 20_000, seconds: 4 },
  run: ({ keys, seconds }) =>
    withPerkv([], async (server) => {
      await fill(server, 0, keys)
      const request = () => {
        const dice = random(100)
        if (dice < 70) return uniform.get(keys)
        return dice < 90 ? uniform.put(keys) : uniform.txn(keys)
      }
      const order = { url: server.url, request, tolerated: TOLERATED }
      await load({ ...order, seconds: Math.min(WARM_UP_S, seconds) })
      const answered = []
      const rss = [rssBytes(server)]
      const sampler = setInterval(() => rss.push(rssBytes(server)), 1000)
      const since = performance.now()
      const onDone = (latency) => {
        const second = Math.floor((performance.now() - since) / 1000)
        while (answered.length <= second) answered.push([])
        answered[second].push(latency)
      }
      const result = await load({ ...order, seconds, onDone }).finally(() => clearInterval(sampler))
      const bySecond = answered.slice(0, seconds).map((latencies, second) => ({
        second,
        per_s: latencies.length,
        p99_ms: latenciesOf(latencies).p99 ?? null,
        rss_mb: (rss[second] ?? rss.at(-1)) / 1e6,
      }))
      const memory = bySecond.map(({ rss_mb }) => rss_mb)
      const row = {
        'requests/s': result.rate,
        'in the worst second': Math.min(...bySecond.map(({ per_s }) => per_s)),
        'p50, ms': result.p50,
        'p99, ms': result.p99,
        'longest, ms': result.max,
        failed: result.failed,
        'RSS after a minute, MB': memory[60] ?? memory.at(-1),
        'RSS at most, MB': Math.max(...memory),
      }
      return { blocks: [[row]], by_second: bySecond, charts: { mixed: chart(bySecond) } }
    }),
  tell: ({ settings: { keys, seconds }, blocks }) => [
    '### Everything at once',
    `For ${seconds} s: 70 % GET, 20 % PUT, 10 % \`POST /v1/txn\` with a check and two puts, at random over ${whole(keys)} keys.`,
    ...blocks,
    '![Throughput and p99 by second](performance/mixed.svg)',
  ],
}

function chart(bySecond) {
  const of = (field) => bySecond.map((row) => [row.second, row[field]])
  return lines({
    title: '70 % GET, 20 % PUT, 10 % transactions, second by second',
    x: { label: 'second', kind: 'linear' },
    y: { label: 'requests/s' },
    y2: { label: 'p99, ms', kind: 'log10' },
    series: [
      { name: 'requests/s', points: of('per_s') },
      { name: 'p99', points: of('p99_ms'), right: true },
    ],
  })
}
