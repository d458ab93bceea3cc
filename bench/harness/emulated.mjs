// Servers on one table of Google's Bigtable server in memory. `test/bigtable/run.sh` installs what it needs.
import { initTable } from '../../dist/store/table/bigtable/format-admin.js'
import { printTableAddress } from '../../dist/store/table/bigtable/table-address.js'
import { startEmulator } from '../../test/bigtable/emulator/emulator.mjs'
import { startServer, statusOf } from './perkv.mjs'
import { kill } from './process.mjs'

/**
 * Runs `use` with servers on a new table of a new emulator, and the table's address.
 * @param delayMs of every call to the table
 */
export async function withServers({ count, delayMs = 0 }, use) {
  const emulator = await startEmulator({ delayMs })
  process.env.BIGTABLE_EMULATOR_HOST = emulator.host
  const address = { project: 'bench', instance: 'emulator', table: 'table' }
  await initTable(address, console.error)
  const flags = ['--store', printTableAddress(address), '--log-level', 'error', '--loop-delay-ms-max', '0']
  const startOne = () => startServer(['dist/cli.js', 'serve', '--port', '0', ...flags])
  const servers = await Promise.all(Array.from({ length: count }, startOne))
  try {
    const roles = await Promise.all(servers.map(async (server) => (await statusOf(server)).oracle.role))
    const leader = servers[roles.indexOf('leader')]
    return await use({ address, leader, servers, followers: servers.filter((server) => server !== leader) })
  } finally {
    await Promise.all(servers.map(kill))
    await emulator.stop()
  }
}

/** Calls of a server to the table so far, by kind. */
export async function callsOf({ url }) {
  const text = await (await fetch(`${url}/metrics`)).text()
  return Object.fromEntries(
    [...text.matchAll(/^perkv_table_calls_total\{kind="(\w+)"\} (\d+)/gm)].map(([, kind, n]) => [kind, Number(n)]),
  )
}
