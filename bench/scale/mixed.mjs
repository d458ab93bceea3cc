// Minutes of reads, writes and transactions, second by second: what compactions and collections of garbage do to them.
import { lines } from '../chart.mjs'
import { rssBytes } from '../proc.mjs'
import { median } from '../process.mjs'
import { random } from './data.mjs'
import { fill } from './fill.mjs'
import { latencies, load } from './load.mjs'
import { each, getUniform, putUniform, txnUniform } from './requests.mjs'
import { withPerkv } from './servers.mjs'

const CONNECTIONS = 64
/** While it warms up, seconds count for nothing. */
const WARM_UP_S = 5

export function mixed({ minutes, mixedKeys: keys }) {
  return withPerkv(async (server) => {
    await fill(server, 0, keys)
    const requests = each(() => {
      const dice = random(100)
      if (dice < 70) return getUniform(keys)
      return dice < 90 ? putUniform(keys) : txnUniform(keys)
    })
    await load({ server, requests, connections: CONNECTIONS, seconds: Math.min(WARM_UP_S, minutes * 60) })
    const rss = [rssBytes(server)]
    const sampler = setInterval(() => rss.push(rssBytes(server)), 1000)
    const run = load({ server, requests, connections: CONNECTIONS, seconds: minutes * 60, isTolerant: true })
    const result = await run.finally(() => clearInterval(sampler))
    const by_second = secondsOf(result, rss)
    const settings = { keys, connections: CONNECTIONS, minutes, mix: '70 % GET, 20 % PUT, 10 % POST /v1/txn' }
    return { settings, rows: [summary(result, by_second)], by_second, charts: charts(by_second) }
  })
}

/** Whole seconds only: the last one is cut short. */
function secondsOf({ seconds, elapsed }, rss) {
  return Array.from({ length: Math.max(1, Math.floor(elapsed)) }, (_, second) => {
    const answered = seconds[second] ?? []
    const { p99, max } = latencies(answered)
    return { second, per_s: answered.length, p99_ms: p99, max_ms: max, rss_mb: (rss[second] ?? rss.at(-1)) / 1e6 }
  })
}

function summary({ count, elapsed, failed, p50, p99, max }, bySecond) {
  const slowest = bySecond.toSorted((a, b) => a.per_s - b.per_s)[0]
  const longest = bySecond.toSorted((a, b) => b.max_ms - a.max_ms)[0]
  return {
    per_s: count / elapsed,
    failed,
    p50_ms: p50,
    p99_ms: p99,
    max_ms: max,
    median_second: median(bySecond.map(({ per_s }) => per_s)),
    worst_second: slowest.per_s,
    worst_at_s: slowest.second,
    max_at_s: longest.second,
    rss_first_mb: bySecond[0].rss_mb,
    rss_max_mb: Math.max(...bySecond.map(({ rss_mb }) => rss_mb)),
    rss_last_mb: bySecond.at(-1).rss_mb,
  }
}

function charts(bySecond) {
  const x = { label: 'second', kind: 'linear' }
  const of = (field) => bySecond.map((row) => [row.second, row[field]])
  return {
    mixed: lines({
      title: '70 % GET, 20 % PUT, 10 % transactions, second by second',
      x,
      y: { label: 'requests/s' },
      y2: { label: 'p99, ms', kind: 'log10' },
      series: [
        { name: 'requests/s', points: of('per_s') },
        { name: 'p99', points: of('p99_ms'), right: true },
      ],
    }),
    'mixed-memory': lines({
      title: 'Memory of the server, second by second',
      x,
      y: { label: 'RSS, MB' },
      series: [{ name: 'RSS', points: of('rss_mb') }],
    }),
  }
}
