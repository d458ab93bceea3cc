// What was measured on PostgreSQL, as tables.
import { median, summaryOf } from '../../harness/numbers.mjs'
import { row, settingOf, short, spreadOf, whole } from '../../harness/report.mjs'

/** `goal` is of PerKV's rate beside the bare one. */
export const WORKS = {
  get: { title: '`GET`, beside a select by primary key', goal: 0.6 },
  put: { title: '`PUT` of a known key, beside an upsert', goal: 0.5 },
  put_new: { title: '`PUT` of a new key, beside an upsert' },
  txn: { title: '`/v1/txn` of two puts, beside begin, two upserts, commit', goal: 0.4 },
}

const of = (runs, field) => median(runs.map(field))
const per = (runs, field, times = 1) => of(runs, (run) => (run[field] * times) / run.count)
/** Of each round of one contender, which another one had too. */
const ratios = (runs, others) => summaryOf(runs.map(({ rate }, round) => rate / others[round].rate))

/** @param result with its circumstances. */
export function tellBeside(result) {
  const { settings, results } = result
  const works = Object.entries(results)
  const rates = works.map(([work, { perkv, bare }]) => {
    const ratio = ratios(perkv, bare)
    const { goal, reached } = row('', ratio.median, { goal: WORKS[work].goal })
    const latency = (name) => `${short(of(perkv, (run) => run[name]))} / ${short(of(bare, (run) => run[name]))}`
    return {
      [`PerKV / bare, ${settings.connections} connections`]: WORKS[work].title,
      'per second': `${whole(of(perkv, ({ rate }) => rate))} / ${whole(of(bare, ({ rate }) => rate))}`,
      'p50, ms': latency('p50'),
      'p99, ms': latency('p99'),
      ratio: spreadOf(ratio),
      goal,
      reached,
    }
  })
  const costs = works.flatMap(([work, contenders]) =>
    Object.entries(contenders).map(([name, runs]) => ({
      'seconds of processors per 1,000 operations': `${WORKS[work].title.split(',')[0]}${name === 'bare' ? ', bare' : ''}`,
      server: name === 'bare' ? '' : short(per(runs, 'servers', 1000)),
      PostgreSQL: short(per(runs, 'postgres', 1000)),
      generator: short(per(runs, 'generator', 1000)),
      'statements per operation': name === 'bare' ? ({ txn: 4 }[work] ?? 1) : short(per(runs, 'statements')),
      'bytes of WAL': whole(per(runs, 'wal')),
    })),
  )
  return [
    settingOf([result]).replaceAll('\n', ' '),
    `Beside the bare client of PostgreSQL on one machine in turn, ${settings.rounds} rounds of ${settings.seconds} s, keys at random of ${whole(settings.keys)}; both sides are asked by one process of Node.`,
    rates,
    costs,
  ]
}

export function tellServers({ settings, results }) {
  const lines = Object.entries(results).flatMap(([work, contenders]) =>
    Object.entries(contenders).map(([count, runs]) => ({
      'servers on one PostgreSQL': `${count}, ${work === 'put' ? '`PUT` of a known key' : 'transfer of two keys'}`,
      'per second': whole(of(runs, ({ rate }) => rate)),
      'to one server': spreadOf(ratios(runs, contenders[settings.counts[0]])),
      'p50, ms': short(of(runs, ({ p50 }) => p50)),
      'p99, ms': short(of(runs, ({ p99 }) => p99)),
      failed: runs.reduce((sum, { failed }) => sum + failed, 0),
      'statements per operation': short(per(runs, 'statements')),
      'CPU of servers, s per 1,000': short(per(runs, 'servers', 1000)),
      'of PostgreSQL': short(per(runs, 'postgres', 1000)),
      'of the generator': short(per(runs, 'generator', 1000)),
    })),
  )
  return [
    `Servers, PostgreSQL and the generator share the cores of one machine, ${settings.connections} connections over the servers.`,
    lines,
  ]
}
