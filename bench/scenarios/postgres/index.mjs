// PerKV on a PostgreSQL of its own: beside what the bare client of PostgreSQL does there, and by the number of servers. PostgreSQL,
// servers and generators share this machine. Linux only.
import { withServers } from '../../harness/on-postgres.mjs'
import { fill } from '../../harness/perkv.mjs'
import { cpuMicros, familyCpuSeconds, startWorker } from '../../harness/process.mjs'
import { inTurn } from '../../harness/rounds.mjs'
import { callsOf } from '../../harness/table-servers.mjs'
import { scenariosOn } from '../shared-table.mjs'
import { tellBeside, tellServers, WORKS } from './tell.mjs'

const beside = {
  full: { rounds: 5, seconds: 2, warmSeconds: 2, connections: 64, keys: 10_000 },
  quick: { rounds: 1, seconds: 0.5, warmSeconds: 0.2, keys: 1000 },
  run: (settings) =>
    withServers({ count: 1 }, async ({ postgres, servers }) => {
      const { keys } = settings
      await postgres.query(`create table bare (key text primary key, value text not null, version bigint not null default 0)
        with (fillfactor = 80)`)
      await postgres.query(
        `insert into bare select 'key' || lpad(n::text, 10, '0'), repeat('v', 100) from generate_series(0, ${keys - 1}) n`,
      )
      await fill(servers[0], 0, keys)
      await postgres.query('vacuum analyze')
      await postgres.query('checkpoint')
      const generators = { perkv: generatorOf(servers[0].url), bare: generatorOf(postgres.url()) }
      const results = {}
      for (const work of Object.keys(WORKS)) {
        const perkv = contender(generators.perkv, work, settings, { postgres, servers })
        results[work] = await inTurn(
          { perkv, bare: contender(generators.bare, work, settings, { postgres, servers: [] }) },
          settings,
        )
      }
      return { results }
    }),
  tell: tellBeside,
}

const servers = {
  full: { rounds: 3, seconds: 3, warmSeconds: 2, connections: 64, keys: 10_000, counts: [1, 2, 3] },
  quick: { rounds: 1, seconds: 0.5, warmSeconds: 0.2, keys: 1000, counts: [1, 2] },
  run: (settings) =>
    withServers({ count: Math.max(...settings.counts) }, async ({ postgres, leader, followers }) => {
      await fill(leader, 0, settings.keys)
      const results = {}
      for (const work of ['put', 'transfer']) {
        const contenders = settings.counts.map((count) => {
          const asked = [leader, ...followers].slice(0, count)
          const generator = generatorOf(...asked.map(({ url }) => url))
          return [count, contender(generator, work, settings, { postgres, servers: asked })]
        })
        results[work] = await inTurn(Object.fromEntries(contenders), settings)
      }
      return { results }
    }),
  tell: tellServers,
}

const generatorOf = (...urls) => startWorker('bench/scenarios/postgres/generator.mjs', ...urls).call

/** A run of a work, with what servers and PostgreSQL did for it: seconds of processors, statements of servers, bytes of WAL. */
const contender = (call, work, { connections, keys }, { postgres, servers }) =>
  async function run(seconds) {
    const before = await spent(postgres, servers)
    const result = await call('run', work, connections, seconds, keys)
    const after = await spent(postgres, servers)
    return { ...result, ...Object.fromEntries(Object.keys(after).map((name) => [name, after[name] - before[name]])) }
  }

async function spent(postgres, servers) {
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0)
  const calls = await Promise.all(servers.map(callsOf))
  const [{ wal }] = await postgres.query(`select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') as wal`)
  return {
    statements: sum(calls.flatMap(Object.values)),
    wal: Number(wal),
    servers: sum(servers.map((server) => cpuMicros(server).all)) / 1e6,
    postgres: familyCpuSeconds(postgres.pid),
  }
}

/** As on Bigtable; what takes minutes runs only by its name. */
const { calls, ...long } = scenariosOn(withServers)

export const scenarios = {
  beside,
  servers,
  calls,
  ...Object.fromEntries(Object.entries(long).map(([name, scenario]) => [name, { ...scenario, isOnlyByName: true }])),
}
