import { printKey } from '../errors/print-key.js'
import { flagsHelp, integer, readFlags, UsageError } from '../server/flags.js'
import { type InitializedTable, type SharedTable, sharedTableAt } from '../server/shared-table.js'
import { kindOf, requireSoundRecord } from '../store/leveldb/records/system-kinds.js'
import type { Finding } from '../store/table/check/check-row.js'
import type { CheckedTable } from '../store/table/check/check-table.js'
import { amount } from './amount.js'
import type { Command } from './command.js'
import { progressLine } from './progress-line.js'

const FLAGS = {
  json: { help: 'check: one JSON object instead of lines' },
  'problems-max': { value: 'N', help: 'check: problems that are shown; all are counted', default: '100' },
} as const

const ACTIONS = ['init', 'check', 'accept', 'upgrade', 'move'] as const

function isAction(text: string | undefined): text is (typeof ACTIONS)[number] {
  return ACTIONS.some((action) => action === text)
}

export const store: Command = {
  flags: FLAGS,
  operands: [ACTIONS.join('|'), 'ADDRESS'],
  help: `Usage: perkv store init ADDRESS
       perkv store check [flags] ADDRESS
       perkv store accept ADDRESS
       perkv store upgrade ADDRESS
       perkv store move bigtable://PROJECT/INSTANCE/TABLE?app_profile=ID

ADDRESS is a table that servers share: perkv serve --store ADDRESS. Another name of this command is perkv bigtable.
  postgres://USER@HOST/DATABASE[?table=NAME]            docs/postgres.md; it needs: npm install --save-prod pg@8
  bigtable://PROJECT/INSTANCE/TABLE[?app_profile=ID]    docs/bigtable.md; it needs: npm install --save-prod @google-cloud/bigtable@6.5.1

init makes what is missing of the table, and changes nothing else. Passwords of PostgreSQL come from PGPASSWORD or .pgpass,
credentials of Google as its own tools find them; BIGTABLE_EMULATOR_HOST=HOST:PORT names an emulator instead.

check reads every cell of the table, and changes nothing; servers may go on. One line per problem. Exit codes: 0 sound,
1 damaged or could not run, 2 used wrongly. What it marks as a warning is no damage.

accept lets servers serve a table that lacks what they had committed, as after a failover to a replica that came too late. They end,
and none starts, until somebody has seen what is missing. It reads every cell. Run it too before servers start on an older copy.

upgrade raises the format of the table to the newest that this PerKV serves. Older servers are refused from then on.

move makes the cluster that this app profile routes to the one that all servers use. Stop all servers first; it waits until
everything is replicated.

Flags:
${flagsHelp(FLAGS)}`,

  async run(args, env) {
    const flags = readFlags(FLAGS, args, env, this.operands)
    const [action, text = ''] = flags.positionals
    if (!isAction(action)) throw new UsageError(`"${action}" is none of ${ACTIONS.join(', ')}`)
    const table = sharedTableAt(text)
    if (table === undefined)
      throw new UsageError('the address begins with neither postgres:// nor bigtable://: perkv store --help shows both')
    if (action === 'init') await print(textOf(table.place, await table.init(warn)))
    else if (action === 'accept') await accept(table)
    else if (action === 'upgrade') await upgrade(table)
    else if (action === 'move') await move(table)
    else await check(table, flags.isSet('json'), integer(flags.required('problems-max'), 0, 1_000_000))
    process.exit() // Google's client keeps its connections open.
  },
}

async function upgrade(table: SharedTable): Promise<void> {
  const { from, to } = await table.upgrade(warn)
  const done =
    from === to ? `has format ${to} already, the newest of this PerKV` : `has format ${to} now; it had ${from}`
  await print(`${table.place} ${done}\n`)
}

async function accept(table: SharedTable): Promise<void> {
  const progress = progressLine()
  const { above, why } = await table.accept((rows) => progress.show(amount(rows, 'row')))
  progress.clear()
  const what = why === undefined ? 'no server had found a loss' : `accepted: ${why}`
  await print(`${table.place}: ${what}; timestamps go on above ${above}\n`)
}

async function move(table: SharedTable): Promise<void> {
  if (table.move === undefined) throw new UsageError(`move is for Bigtable: ${table.engine.title} has no clusters`)
  const { from = 'an unknown one', to } = await table.move(warn)
  const done = from === to ? `is served from cluster ${to} already` : `is served from cluster ${to} now; it was ${from}`
  await print(`${table.place} ${done}\n`)
}

function warn(message: string): void {
  process.stderr.write(`perkv: ${message}\n`)
}

async function check(table: SharedTable, isJson: boolean, shownMax: number): Promise<void> {
  const progress = progressLine()
  const findings: Finding[] = []
  const checked = await table.check({
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

function textOf(address: string, { made, cluster, needs }: InitializedTable): string {
  const what =
    made === undefined ? `${address} is there already, and nothing was changed` : `made ${made} of ${address}`
  const where = cluster === undefined ? '' : `\nIt is served from cluster ${cluster}.`
  return `${what}${where}${needs === undefined ? '' : `\n${needs}`}
Start as many servers as you like: perkv serve --store '${address}'
`
}
