import { printKey } from '../errors/print-key.js'
import { flagsHelp, integer, readFlags, UsageError } from '../server/flags.js'
import { kindOf, requireSoundRecord } from '../store/leveldb/records/system-kinds.js'
import { parseTableAddress, printTableAddress, type TableAddress } from '../store/table/bigtable/table-address.js'
import type { Finding } from '../store/table/check/check-row.js'
import type { CheckedTable } from '../store/table/check/check-table.js'
import { amount } from './amount.js'
import type { Command } from './command.js'
import { progressLine } from './progress-line.js'

const FLAGS = {
  json: { help: 'check: one JSON object instead of lines' },
  'problems-max': { value: 'N', help: 'check: problems that are shown; all are counted', default: '100' },
} as const

export const bigtable: Command = {
  flags: FLAGS,
  operands: ['init|check|upgrade|move', 'ADDRESS'],
  help: `Usage: perkv bigtable init bigtable://PROJECT/INSTANCE/TABLE[?app_profile=ID]
       perkv bigtable check [flags] bigtable://PROJECT/INSTANCE/TABLE[?app_profile=ID]
       perkv bigtable upgrade bigtable://PROJECT/INSTANCE/TABLE[?app_profile=ID]
       perkv bigtable move bigtable://PROJECT/INSTANCE/TABLE?app_profile=ID

init makes the table and its families, where they are missing; a second run changes nothing. Servers then share the table:
perkv serve --store bigtable://PROJECT/INSTANCE/TABLE

check reads every cell of the table, and changes nothing; servers may go on. One line per problem. Exit codes: 0 sound,
1 damaged or could not run, 2 used wrongly. What it marks as a warning is no damage.

upgrade raises the format of the table to the newest that this PerKV serves, once every server knows it. Older servers are refused
from then on.

move makes the cluster that this app profile routes to the one that all servers use. Stop all servers first; it waits until
everything is replicated.

It needs Google's client (npm install --save-prod @google-cloud/bigtable@6.5.1), and credentials as Google's own tools find them.
BIGTABLE_EMULATOR_HOST=HOST:PORT names an emulator instead.

Flags:
${flagsHelp(FLAGS)}`,

  async run(args, env) {
    const flags = readFlags(FLAGS, args, env, this.operands)
    const [action, text = ''] = flags.positionals
    if (action !== 'init' && action !== 'check' && action !== 'upgrade' && action !== 'move')
      throw new UsageError(`"${action}" is none of init, check, upgrade, move`)
    const address = parseTableAddress(text)
    if (action === 'init') await init(address)
    else if (action === 'upgrade') await upgrade(address)
    else if (action === 'move') await move(address)
    else await check(address, flags.isSet('json'), integer(flags.required('problems-max'), 0, 1_000_000))
    process.exit() // Google's client keeps its connections open.
  },
}

async function init(address: TableAddress): Promise<void> {
  const { initTable } = await formatAdmin()
  const made = await initTable(address, warn)
  await print(textOf(printTableAddress(address), made))
}

async function upgrade(address: TableAddress): Promise<void> {
  const { upgradeTableAt } = await formatAdmin()
  const { from, to } = await upgradeTableAt(address, warn)
  const done =
    from === to ? `has format ${to} already, the newest of this PerKV` : `has format ${to} now; it had ${from}`
  await print(`${printTableAddress(address)} ${done}\n`)
}

async function move(address: TableAddress): Promise<void> {
  const { moveTableAt } = await formatAdmin()
  const { from = 'an unknown one', to } = await moveTableAt(address, warn)
  const done = from === to ? `is served from cluster ${to} already` : `is served from cluster ${to} now; it was ${from}`
  await print(`${printTableAddress(address)} ${done}\n`)
}

/** Loads Google's client. */
function formatAdmin(): Promise<typeof import('../store/table/bigtable/format-admin.js')> {
  return import('../store/table/bigtable/format-admin.js')
}

function warn(message: string): void {
  process.stderr.write(`perkv: ${message}\n`)
}

async function check(address: TableAddress, isJson: boolean, shownMax: number): Promise<void> {
  const { checkTableAt } = await import('../store/table/bigtable/open-check.js')
  const progress = progressLine()
  const findings: Finding[] = []
  const checked = await checkTableAt(address, {
    onFinding: (finding) => void (findings.length < shownMax && findings.push(finding)),
    onProgress: (rows) => progress.show(amount(rows, 'row')),
    requireSystemRecord: (name, value) => {
      const kind = kindOf(name)
      if (kind !== undefined) requireSoundRecord(kind, name, value)
    },
  })
  progress.clear()
  if (checked.problems > 0) process.exitCode = 1
  await print(isJson ? `${JSON.stringify(asJson(checked, findings))}\n` : linesOf(checked, findings))
}

function asJson(checked: CheckedTable, findings: readonly Finding[]): object {
  const { format, cluster, rows, serverRows, versions, locks, bytes, largestRow, comparedOneIn, problems, warnings } =
    checked
  const table = {
    ...{ format, cluster, rows, server_rows: serverRows, versions, locks, bytes },
    ...(largestRow && { largest_row: { key: asBase64(largestRow.key), bytes: largestRow.bytes } }),
    compared_one_in: comparedOneIn,
  }
  const shown = findings.map(({ kind, isProblem, key, ts, message }) => ({
    kind,
    severity: isProblem ? 'problem' : 'warning',
    ...(key && { key: asBase64(key) }),
    ...(ts !== undefined && { ts }),
    message,
  }))
  return { sound: problems === 0, table, problems, warnings, findings: shown }
}

function asBase64(key: Uint8Array): object {
  return { base64: Buffer.from(key).toString('base64') }
}

function linesOf(checked: CheckedTable, findings: readonly Finding[]): string {
  const { format, cluster, rows, serverRows, versions, locks, bytes, largestRow, comparedOneIn, problems, warnings } =
    checked
  const lines = findings.map(({ kind, isProblem, message }) => `${isProblem ? '' : 'warning: '}${kind}: ${message}`)
  if (problems + warnings > findings.length) lines.push(`... ${amount(problems + warnings, 'finding')} in all`)
  lines.push(
    `format    ${format ?? 'unknown'}${cluster === undefined ? '' : `, served from cluster ${cluster}`}`,
    `rows      ${rows.toLocaleString('en')}, and ${serverRows.toLocaleString('en')} of the server`,
    `versions  ${versions.toLocaleString('en')}`,
    `locks     ${locks.toLocaleString('en')}`,
    `bytes     ${mb(bytes)}${largestRow === undefined ? '' : `, ${mb(largestRow.bytes)} of them in the row of ${printKey(largestRow.key)}`}`,
  )
  if (comparedOneIn > 1)
    lines.push(`one in ${comparedOneIn.toLocaleString('en')} transactions was compared in all of its rows`)
  lines.push(problems === 0 ? 'sound' : `damaged: ${amount(problems, 'problem')}`)
  return `${lines.join('\n')}\n`
}

function mb(bytes: number): string {
  return `${(bytes / 1e6).toLocaleString('en', { maximumFractionDigits: 1 })} MB`
}

/** Resolves when the text is written, since the process ends then. */
function print(text: string): Promise<void> {
  return new Promise((resolve) => process.stdout.write(text, () => resolve()))
}

interface MadeTable {
  readonly table: boolean
  readonly families: readonly string[]
  readonly format: { readonly cluster?: string | undefined }
}

function textOf(address: string, { table, families, format: { cluster } }: MadeTable): string {
  const what = table
    ? `made the table of ${address}`
    : families.length > 0
      ? `added to ${address}: ${families.join(', ')}`
      : `${address} is there already, and nothing was changed`
  const where = cluster === undefined ? '' : `\nIt is served from cluster ${cluster}.`
  return `${what}${where}
Servers need an app profile with single-cluster routing that allows single-row transactions. This one does.
Start as many as you like: perkv serve --store '${address}'
`
}
