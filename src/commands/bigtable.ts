import { UsageError } from '../server/flags.js'
import { parseTableAddress, printTableAddress } from '../store/bigtable/table-address.js'
import type { Command } from './command.js'

export const bigtable: Command = {
  flags: {},
  operands: ['init', 'ADDRESS'],
  help: `Usage: perkv bigtable init bigtable://PROJECT/INSTANCE/TABLE[?app_profile=ID]

Makes the table and its families, where they are missing; a second run changes nothing. Servers then share the table:
perkv serve --store bigtable://PROJECT/INSTANCE/TABLE

It needs Google's client (npm install --save-prod @google-cloud/bigtable@6.5.1), and credentials as Google's own tools find them.
BIGTABLE_EMULATOR_HOST=HOST:PORT names an emulator instead.
`,

  async run([action, address, ...more]) {
    if (action !== 'init') throw new UsageError('there is one thing to do: perkv bigtable init ADDRESS')
    if (address === undefined) throw new UsageError('ADDRESS is missing')
    if (more.length > 0) throw new UsageError(`one argument too many: "${more[0]}"`)
    const table = parseTableAddress(address)
    const { makeTable, requireSound } = await import('../store/bigtable/table-admin.js') // Loads Google's client.
    const made = await makeTable(table)
    await requireSound(table)
    process.stdout.write(textOf(printTableAddress(table), made))
    process.exit(0) // Google's client keeps its connections open.
  },
}

function textOf(address: string, made: { readonly table: boolean; readonly families: readonly string[] }): string {
  const { table, families } = made
  const what = table
    ? `made the table of ${address}`
    : families.length > 0
      ? `added to ${address}: ${families.join(', ')}`
      : `${address} is there already, and nothing was changed`
  return `${what}
Servers need an app profile with single-cluster routing that allows single-row transactions. This one does.
Start as many as you like: perkv serve --store '${address}'
`
}
