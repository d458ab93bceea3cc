// The longest turns of the event loop that leases make: how long another request waits meanwhile.
import { Agent, request } from 'node:http'
import { makeDirectory, removeDirectory, start, stop } from '../process.mjs'
import { Holders } from './told.mjs'

const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const SETTLED_MS = 1500
/** Connections are idle for long, and a server that has stood still looks busy to itself. */
const FLAGS = ['--idle-ms-max', '600000', '--loop-delay-ms-max', '0']

export async function turns({ leases, connections, waiters, profile }) {
  const directory = makeDirectory()
  const cli = ['dist/cli.js', 'serve', '--port', '0', '--data', directory, '--leases-max', `${leases + 1}`]
  const server = await start([...profile, ...cli, ...FLAGS])
  const { url } = server
  const holders = await Holders.open({ url, connections, leases, everyMs: 3000 })
  const call = async (method, path, body) => {
    const headers = { 'content-type': 'application/json' }
    const answer = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) })
    if (!answer.ok) throw new Error(`${method} ${path}: ${await answer.text()}`)
    return answer.json()
  }
  const status = async () => (await call('GET', '/v1/status')).leases
  const until = async (check) => {
    while (!check(await status())) await rest(50)
  }

  /** Asks for a key again and again: the longest answer since the last reading. */
  let longestMs = 0
  let isOver = false
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  function ask() {
    const begin = performance.now()
    request(`${url}/v1/kv/probe`, { agent }, (answer) => {
      answer.resume().on('end', () => {
        longestMs = Math.max(longestMs, performance.now() - begin)
        if (!isOver) setTimeout(ask, 0)
      })
    }).end()
  }
  const take = () => {
    const taken = longestMs
    longestMs = 0
    return taken
  }
  const rows = []
  const measured = async (name, run) => {
    take()
    await run()
    rows.push({ name, ms: take() })
  }
  /** The server stands still until all of it is due. */
  const measuredFromStill = async (name, ms, over) => {
    isOver = true
    await rest(20)
    server.child.kill('SIGSTOP')
    await rest(ms)
    server.child.kill('SIGCONT')
    isOver = false
    take()
    ask()
    await over()
    await settled()
    rows.push({ name, ms: take() })
  }
  const settled = () => rest(SETTLED_MS)
  const release = (holder) => call('DELETE', `/v1/leases/wanted?holder=${holder}`)
  const openConnections = async () => {
    const text = await (await fetch(`${url}/metrics`)).text()
    return Number(/^perkv_http_connections (\d+)/m.exec(text)[1])
  }
  const left = async () => {
    await holders.do('leave')
    while ((await openConnections()) > connections + 10) await rest(50)
    await until(({ waiting }) => waiting === 0)
  }
  /** @returns a function that waits for the answers to those that wait from now on. */
  const waiting = async (how) => {
    await call('PUT', '/v1/leases/wanted', { holder: 'first', ttl_ms: 60_000 })
    const { id } = await holders.do('wait', { count: waiters, waitMs: 60_000, ...how })
    await until(({ waiting }) => waiting === waiters)
    await settled()
    return () => holders.result(`${id} answered`)
  }

  await holders.do('grant')
  ask()
  await settled()
  await measured('nothing', settled)
  await measuredFromStill('nothing, after the server stood still', 6000, settled)
  for (let round = 0; round < 5; round++) await holders.do('list') // Compiled code, as it is on a server that runs.
  await measured(`GET of ${leases} leases`, async () => {
    for (let round = 0; round < 5; round++) {
      await holders.do('list')
      await rest(50)
    }
  })

  await holders.do('grant', { ttlMs: 5000 })
  await measuredFromStill(`${leases} leases run out together`, 6000, () => until(({ held }) => held === 0))

  await waiting()
  await measured(`a lease is released for which ${waiters} wait`, async () => {
    await release('first')
    await settled()
  })
  await left()
  for (const { holder } of (await call('GET', '/v1/leases')).leases) await release(holder)

  const granted = await waiting({ sameHolder: true })
  await measured(`the same, and all ${waiters} are one holder`, async () => {
    await release('first')
    await granted()
    await settled()
  })
  await left()
  await release('they')

  const refused = await waiting({ waitMs: 20_000 })
  await measuredFromStill(`${waiters} waits end together`, 21_000, refused)
  isOver = true
  await holders.close()
  await stop(server)
  agent.destroy()
  removeDirectory(directory)
  return rows
}
