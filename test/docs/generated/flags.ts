import { COMMANDS } from '../../../src/commands/command-table.js'
import { SERVER_FLAGS } from '../../../src/commands/server-flags.js'
import { SERVE_FLAGS } from '../../../src/server/config.js'
import { type Flag, type Flags, variablesOf } from '../../../src/server/flags.js'
import { limitFlags } from '../../../src/server/limit-flags.js'
import { code, linked, table } from './markdown.js'

/** Those of `perkv serve`, but for the limits. */
export function serveFlags(): string {
  return flagTable(Object.fromEntries(Object.entries(SERVE_FLAGS).filter(([name]) => !(name in limitFlags))))
}

export function limits(): string {
  const rows = Object.entries(limitFlags).map(([name, { help, beyond, default: standard }]) => [
    code(`--${name}`),
    `${standard}${inUnits(name, Number(standard))}`,
    linked(help),
    beyond,
  ])
  return table(['flag', 'default', 'of', 'beyond it'], rows)
}

/** Those of all other commands, each flag that means the same once. */
export async function commandFlags(): Promise<string> {
  const commandsOf = new Map<string, string[]>()
  for (const [command, { load }] of COMMANDS)
    for (const flag of Object.entries((await load()).flags)) {
      if (command === 'serve' || flag[0] in SERVER_FLAGS) continue
      const row = JSON.stringify(flagRow(flag))
      commandsOf.set(row, [...(commandsOf.get(row) ?? []), command])
    }
  const rows = [...commandsOf].map(([text, commands]) => {
    const [flag = '', ...row] = JSON.parse(text) as string[]
    return [flag, commands.map(code).join(', '), ...row]
  })
  return table(['flag', 'of', 'variable', 'default', ''], rows)
}

export function serverFlags(): string {
  return flagTable(SERVER_FLAGS)
}

/** Without the columns that are empty. */
function flagTable(flags: Flags): string {
  const rows = Object.entries(flags).map(flagRow)
  const filled = (_: string, column: number): boolean => rows.some((row) => row[column] !== '')
  return table(
    ['flag', 'variable', 'default', ''].filter(filled),
    rows.map((row) => row.filter(filled)),
  )
}

function flagRow([name, flag]: readonly [string, Flag]): string[] {
  const { value, help, default: standard } = flag
  const [variable] = variablesOf({ [name]: flag })
  return [
    code(value === undefined ? `--${name}` : `--${name} ${value}`),
    variable === undefined ? '' : code(variable),
    standard === undefined ? '' : `${code(standard)}${inUnits(name, Number(standard))}`,
    linked(help),
  ]
}

/** ` (64 MiB)`. */
function inUnits(name: string, value: number): string {
  if (!name.includes('bytes') || value < 1024) return ''
  const power = Math.floor(Math.log2(value) / 10)
  return ` (${value / 1024 ** power} ${['', 'KiB', 'MiB', 'GiB'][power]})`
}
