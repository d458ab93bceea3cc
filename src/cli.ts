#!/usr/bin/env node
import { COMMAND_GROUPS, COMMANDS } from './commands/command-table.js'
import { UsageError } from './server/flags.js'
import { UnusableAddress } from './server/listen-address.js'
import { UnusableFile } from './server/unusable-file.js'
import { BigtableSetupError } from './store/bigtable/bigtable-setup-error.js'
import { DataDirectoryError } from './store/leveldb/data-directory-error.js'
import { version } from './version.js'

/** Exit codes: 0 done, 1 could not run, 2 used wrongly. */
async function main([name, ...args]: readonly string[]): Promise<void> {
  if (name === 'help' && args[0] !== undefined) return main([args[0], '--help'])
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') return print(HELP)
  if (name === '--version' || name === '-v') return print(`${version()}\n`)
  const entry = COMMANDS.get(name)
  if (entry === undefined) throw new UsageError(`unknown command "${name}"`)
  const command = await entry.load()
  if (asksForHelp(args)) print(command.help)
  else await command.run(args, process.env)
}

/** After `--` these are arguments. */
function asksForHelp(args: readonly string[]): boolean {
  const end = args.indexOf('--')
  const flags = end === -1 ? args : args.slice(0, end)
  return flags.includes('--help') || flags.includes('-h')
}

const HELP = `A transactional key-value server: Percolator's protocol on LevelDB, behind HTTP.
Usage: perkv COMMAND [flags]

${Object.entries(COMMAND_GROUPS)
  .map(([purpose, commands]) => {
    const lines = Object.entries(commands).map(([name, { does }]) => `  perkv ${name.padEnd(10)} ${does}\n`)
    return `${purpose}\n${lines.join('')}`
  })
  .join('')}
perkv COMMAND --help has the flags of a command, and an example.
Commands talk to --server URL, or PERKV_SERVER; default http://127.0.0.1:7400.
`

/** Errors whose message is one line that says all. */
const FOR_PEOPLE = [UsageError, BigtableSetupError, DataDirectoryError, UnusableFile, UnusableAddress]

function print(text: string): void {
  process.stdout.write(text)
}

function fail(error: unknown): void {
  const isUsage = error instanceof UsageError
  process.stderr.write(`perkv: ${messageOf(error)}${isUsage ? ' (see perkv --help)' : ''}\n`)
  process.exit(isUsage ? 2 : 1)
}

/** One line for what goes wrong in the field; a stack only for a defect. */
function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const isForPeople = FOR_PEOPLE.some((kind) => error instanceof kind) || 'code' in error
  return isForPeople ? error.message : (error.stack ?? error.message)
}

main(process.argv.slice(2)).catch(fail)
