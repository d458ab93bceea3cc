// Leases that are renewed all the time over keep-alive connections: what that takes of a core, beside a bare node:http server that
// echoes the same JSON at the same rate.
import { summaryOf } from '../../harness/numbers.mjs'
import { metric, startPerkv } from '../../harness/perkv.mjs'
import { cleanedUp, cpuMicros, makeDirectory, start, startWorker } from '../../harness/process.mjs'
import { short, spreadOf, whole } from '../../harness/report.mjs'
import { inTurn, metered } from '../../harness/rounds.mjs'

const WARM_UP_S = 3

export const renewals = {
  full: { leases: 10_000, everyMs: 3000, connections: [1000, 100, 10_000], rounds: 5, seconds: 6 },
  quick: { leases: 1000, connections: [100], rounds: 1, seconds: 2 },
  /** The first number of connections is told at length, and the others take one round. */
  async run({ leases, everyMs, connections: [first, ...others], rounds, seconds }) {
    const order = { leases, everyMs, seconds }
    const told = await cleanedUp(() => measure({ ...order, connections: first, rounds }))
    const beside = []
    for (const connections of others)
      beside.push([connections, await cleanedUp(() => measure({ ...order, connections, rounds: 1 }))])
    const row = (name, cell, results = told) => ({
      [`${leases} leases`]: name,
      ...Object.fromEntries(Object.entries(results).map(([contender, all]) => [contender, cell(all)])),
    })
    const rowOf = (name, field) => row(name, (all) => spreadOf(summaryOf(all.map(field))))
    return [
      rowOf('of a core, all threads, %', ({ core }) => core),
      rowOf('processor time per renewal, µs', ({ cpu }) => cpu.all),
      rowOf('p50, ms', ({ p50 }) => p50),
      rowOf('p99, ms', ({ p99 }) => p99),
      row('writes to the disk', (all) => all.reduce((sum, { writes }) => sum + writes, 0)),
      ...beside.map(([count, results]) =>
        row(`over ${count} connections, % of a core`, ([{ core }]) => short(core), results),
      ),
    ]
  },
  tell: ({ settings: { leases, everyMs, connections, rounds, seconds }, blocks }) => [
    `${whole(leases)} leases are renewed every ${everyMs / 1000} s over ${whole(connections[0])} connections of another process, beside a bare node:http server that echoes the same JSON, in ${rounds} rounds of ${seconds} s in turns.`,
    ...blocks,
  ],
}

/** The bare server has no directory. */
const engineWrites = (server) => (server.data === undefined ? 0 : metric(server, 'perkv_engine_write_seconds_count'))

async function measure({ leases, everyMs, connections, rounds, seconds }) {
  const flags = ['--leases-max', String(leases), '--connections-max', String(connections + 100)]
  const servers = {
    PerKV: await startPerkv(makeDirectory(), ...flags),
    'PerKV, `--fast-lane off`': await startPerkv(makeDirectory(), ...flags, '--fast-lane', 'off'),
    'bare node:http': await start(['bench/scenarios/leases/echo.mjs']),
  }
  const contenders = {}
  for (const [name, server] of Object.entries(servers)) {
    const holder = startWorker('bench/scenarios/leases/holders.mjs', server.url)
    await holder.call('open', { connections, leases, everyMs })
    await holder.call('grant')
    contenders[name] = async (seconds) => {
      const writesBefore = await engineWrites(server)
      const [before, since] = [cpuMicros(server), performance.now()]
      const renewed = await metered(server, () => holder.call('renew', { seconds }))
      const core = (cpuMicros(server).all - before.all) / (performance.now() - since) / 10
      return { ...renewed, core, writes: (await engineWrites(server)) - writesBefore }
    }
  }
  return inTurn(contenders, { rounds, seconds, warmSeconds: Math.min(seconds, WARM_UP_S) })
}
