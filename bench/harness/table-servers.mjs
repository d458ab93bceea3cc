// Servers on one table that they share, and their calls to it.
import { NEVER_BUSY, startServer, statusOf } from './perkv.mjs'
import { kill } from './process.mjs'

/** Runs `use` with so many servers on the table at `place`, which is there. */
export async function withServersOn(place, count, use) {
  const flags = ['--store', place, '--log-level', 'error', ...NEVER_BUSY]
  const startOne = () => startServer(['dist/cli.js', 'serve', '--port', '0', ...flags])
  const servers = await Promise.all(Array.from({ length: count }, startOne))
  try {
    const roles = await Promise.all(servers.map(async (server) => (await statusOf(server)).oracle.role))
    const leader = servers[roles.indexOf('leader')]
    return await use({ leader, servers, followers: servers.filter((server) => server !== leader) })
  } finally {
    await Promise.all(servers.map(kill))
  }
}

/** Calls of a server to the table so far, by kind. */
export async function callsOf({ url }) {
  const text = await (await fetch(`${url}/metrics`)).text()
  return Object.fromEntries(
    [...text.matchAll(/^perkv_table_calls_total\{kind="(\w+)"\} (\d+)/gm)].map(([, kind, n]) => [kind, Number(n)]),
  )
}
