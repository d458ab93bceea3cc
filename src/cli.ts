#!/usr/bin/env node
import type { Command } from './commands/command.js'
import { UsageError } from './server/flags.js'
import { UnusableAddress } from './server/listen-address.js'
import { UnusableFile } from './server/unusable-file.js'
import { DataDirectoryError } from './store/leveldb/data-directory-error.js'
import { version } from './version.js'

/** Every command, loaded when it is asked for, with its line in the help. */
const COMMANDS: Readonly<Record<string, { readonly does: string; readonly load: () => Promise<Command> }>> = {
  check: { does: 'verifies a database', load: async () => (await import('./commands/check.js')).check },
  repair: { does: 'mends a damaged one', load: async () => (await import('./commands/repair.js')).repair },
  serve: { does: 'runs the server', load: async () => (await import('./commands/serve.js')).serve },
  backup: {
    does: 'writes all pairs of a server to a file',
    load: async () => (await import('./commands/backup.js')).backup,
  },
  restore: {
    does: 'fills an empty server from such a file',
    load: async () => (await import('./commands/restore.js')).restore,
  },
  dump: { does: 'writes pairs as lines of JSON', load: async () => (await import('./commands/dump.js')).dump },
  load: { does: 'puts pairs from lines of JSON', load: async () => (await import('./commands/load.js')).load },
}

/** Exit codes: 0 done, 1 could not run, 2 used wrongly. */
async function main([name, ...args]: readonly string[]): Promise<void> {
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') return print(HELP)
  if (name === '--version' || name === '-v') return print(`${version()}\n`)
  const entry = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (entry === undefined) throw new UsageError(`unknown command "${name}"`)
  const command = await entry.load()
  if (args.includes('--help') || args.includes('-h')) print(command.help)
  else await command.run(args, process.env)
}

const HELP = `A transactional key-value server: Percolator's protocol on LevelDB, behind HTTP.

Usage: perkv COMMAND [flags]

${Object.entries(COMMANDS)
  .map(([name, { does }]) => `  perkv ${name.padEnd(8)} ${does}\n`)
  .join('')}
perkv serve [--port 7400] [--data ./data] [--host 127.0.0.1] [--token-file FILE]
    serves on http://127.0.0.1:7400, and keeps its data in ./data
perkv serve --help
    has all flags, variables and limits of the server
perkv COMMAND --help
    says more about any other command; perkv --version says which PerKV this is
`

/** Errors whose message is one line that says all. */
const FOR_PEOPLE = [UsageError, DataDirectoryError, UnusableFile, UnusableAddress]

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
