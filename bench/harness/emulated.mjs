// Servers on one table of Google's Bigtable server in memory. `test/bigtable/run.sh` installs what it needs.
import { initTable } from '../../dist/store/table/bigtable/format-admin.js'
import { printTableAddress } from '../../dist/store/table/bigtable/table-address.js'
import { startEmulator } from '../../test/bigtable/emulator/emulator.mjs'
import { withServersOn } from './table-servers.mjs'

/**
 * Runs `use` with servers on a new table of a new emulator, and the table's address.
 * @param delayMs of every call to the table
 */
export async function withServers({ count, delayMs = 0 }, use) {
  const emulator = await startEmulator({ delayMs })
  process.env.BIGTABLE_EMULATOR_HOST = emulator.host
  const address = { project: 'bench', instance: 'emulator', table: 'table' }
  try {
    await initTable(address, console.error)
    return await withServersOn(printTableAddress(address), count, (servers) => use({ address, ...servers }))
  } finally {
    await emulator.stop()
  }
}
