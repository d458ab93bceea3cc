// Servers on one table of Google's Bigtable server in memory.
import { openTable } from '../../dist/store/table/bigtable/google-client.js'
import { printTableAddress } from '../../dist/store/table/bigtable/table-address.js'
import { makeTable } from '../../dist/store/table/bigtable/table-admin.js'
import { rowKeyOfSystem } from '../../dist/store/table/layout/row-keys.js'
import { startEmulator } from '../../test/bigtable/emulator/emulator.mjs'
import { callerOf } from '../http-call.mjs'
import { kill, start } from '../process.mjs'

const CONNECTIONS_MAX = 128

let tables = 0

/**
 * Runs `body` with servers on a new table of a new emulator.
 * @param delayMs of every call to the table
 */
export async function withServers({ count, delayMs = 0 }, body) {
  const emulator = await startEmulator({ delayMs })
  process.env.BIGTABLE_EMULATOR_HOST = emulator.host
  const address = { project: 'bench', instance: 'emulator', table: `table-${++tables}` }
  await makeTable(address)
  const flags = ['--store', printTableAddress(address), '--log-level', 'error', '--loop-delay-ms-max', '0']
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = await start(['dist/cli.js', 'serve', '--port', '0', ...flags])
      return { ...server, call: callerOf(server, CONNECTIONS_MAX) }
    }),
  )
  const table = await openTable(address)
  try {
    const roles = await Promise.all(servers.map(async (server) => (await statusOf(server)).oracle.role))
    const leader = servers[roles.indexOf('leader')]
    return await body({ table, leader, servers, followers: servers.filter((server) => server !== leader) })
  } finally {
    await Promise.all(servers.map(kill))
    await table.close()
    await emulator.stop()
  }
}

export const statusOf = async (server) => JSON.parse(await call(server, 'GET', '/v1/status'))

/** @returns the body. */
export async function call(server, method, path, body) {
  const [status, text] = await server.call(method, path, body)
  if (status < 400) return text
  throw Object.assign(new Error(`${status}: ${text}`), { status })
}

/** Calls of a server to the table so far, by kind. */
export async function callsOf(server) {
  const text = await call(server, 'GET', '/metrics')
  return Object.fromEntries(
    [...text.matchAll(/^perkv_table_calls_total\{kind="(\w+)"\} (\d+)/gm)].map(([, kind, n]) => [kind, Number(n)]),
  )
}

/** What servers of the table sign their asks with. */
export async function secretOf(table) {
  const [row] = await table.rows({ keys: [rowKeyOfSystem('secret')], columns: [{ family: 'o' }] })
  return row.cells[0].value
}
