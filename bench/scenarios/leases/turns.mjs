// The longest turns of the event loop that leases make: how long another request waits meanwhile.
import { setTimeout as sleep } from 'node:timers/promises'
import { metric, statusOf, withPerkv } from '../../harness/perkv.mjs'
import { Probe } from '../../harness/probe.mjs'
import { startWorker } from '../../harness/process.mjs'
import { row } from '../../harness/report.mjs'
import { get, putJson, remove } from '../../harness/requests.mjs'

const SETTLED_MS = 1500
const POLL_MS = 50
/** Connections are idle for long. */
const FLAGS = ['--idle-ms-max', '600000']

export const turns = {
  full: { leases: 10_000, connections: 1000, waiters: 10_000 },
  quick: { leases: 1000, connections: 100, waiters: 1000 },
  run: (settings) =>
    withPerkv([...FLAGS, '--leases-max', String(settings.leases + 1)], (server) =>
      measure(server, startWorker('bench/scenarios/leases/holders.mjs', server.url), settings),
    ),
  tell: ({ blocks }) => ['How long another request waits at most, while:', ...blocks],
}

async function measure(server, holders, { leases, connections, waiters }) {
  await holders.call('open', { connections, leases, everyMs: 3000 })
  await holders.call('grant')
  const probe = await Probe.of(server)
  const settled = () => sleep(SETTLED_MS)
  const rows = []
  const measured = async (name, run) => {
    probe.take()
    await run()
    rows.push(row(name, probe.take(), { unit: 'ms' }))
  }
  /** The server stands still until all of it is due. */
  const measuredFromStill = async (name, ms, over) => {
    probe.pause()
    await sleep(POLL_MS)
    server.child.kill('SIGSTOP')
    await sleep(ms)
    server.child.kill('SIGCONT')
    probe.resume()
    await over()
    await settled()
    rows.push(row(name, probe.take(), { unit: 'ms' }))
  }
  const until = async (check) => {
    while (!check((await statusOf(server)).leases)) await sleep(POLL_MS)
  }
  const release = (holder) => server.call(remove(`/v1/leases/wanted?holder=${holder}`))
  const leave = async () => {
    await holders.call('leave')
    while ((await metric(server, 'perkv_http_connections')) > connections + 10) await sleep(POLL_MS)
    await until(({ waiting }) => waiting === 0)
  }
  const wait = async (how) => {
    await server.call(putJson('/v1/leases/wanted', { holder: 'first', ttl_ms: 60_000 }))
    await holders.call('wait', { count: waiters, waitMs: 60_000, ...how })
    await until(({ waiting }) => waiting === waiters)
    await settled()
  }

  await settled()
  await measured('nothing happens', settled)
  for (let round = 0; round < 5; round++) await holders.call('list') // Compiled code, as it is on a server that runs.
  await measured(`\`GET\` of ${leases} leases`, async () => {
    for (let round = 0; round < 5; round++) {
      await holders.call('list')
      await sleep(POLL_MS)
    }
  })

  await holders.call('grant', 5000)
  await measuredFromStill(`${leases} leases run out`, 6000, () => until(({ held }) => held === 0))

  await wait()
  await measured(`a lease is released for which ${waiters} wait`, async () => {
    await release('first')
    await settled()
  })
  await leave()
  for (const { holder } of (await server.call(get('/v1/leases'))).leases) await release(holder)

  await wait({ isOneHolder: true })
  await measured(`the same, and all ${waiters} are one holder`, async () => {
    await release('first')
    await holders.call('answered')
    await settled()
  })
  await leave()
  await release('they')

  await wait({ waitMs: 20_000 })
  await measuredFromStill(`the waits of ${waiters} end`, 21_000, () => holders.call('answered'))
  probe.close()
  return rows
}
