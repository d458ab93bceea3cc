#!/usr/bin/env node
import { isUtf8 } from 'node:buffer'
import { readFileSync } from 'node:fs'
import { COMMAND_GROUPS, COMMANDS } from './commands/command-table.js'
import { paintFor } from './commands/paint.js'
import { unknownVariables } from './commands/unknown-variables.js'
import { didYouMean, nameInError } from './errors/nearest-name.js'
import { UsageError } from './server/flags.js'
import { UnusableAddress } from './server/listen-address.js'
import { UnusableFile } from './server/unusable-file.js'
import { DataDirectoryError } from './store/leveldb/data-directory-error.js'
import { UnusableTable } from './store/table/layout/unusable-table.js'
import { version } from './version.js'

/** The command that runs, for the hint of an error. */
let running: string | undefined

/** Exit codes: 0 done, 1 could not run, 2 used wrongly. */
async function main([name, ...args]: readonly string[]): Promise<void> {
  if (name === 'help' && args[0] !== undefined) return main([args[0], '--help'])
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') return print(HELP)
  if (name === '--version' || name === '-v') return print(`${version()}\n`)
  const entry = COMMANDS.get(name)
  if (entry === undefined)
    throw new UsageError(`unknown command "${nameInError(name)}"${didYouMean(name, ['help', ...COMMANDS.keys()])}`)
  running = name
  const command = await entry.load()
  if (asksForHelp(args)) return print(command.help)
  requireUtf8(args)
  const unknown = await unknownVariables(command.flags, process.env)
  if (name !== 'serve') {
    guardOutput() // The server writes its log to the file descriptor, and goes on without it.
    if (unknown !== undefined) process.stderr.write(`perkv: ${unknown}\n`)
  }
  await command.run(args, process.env, unknown)
}

const REPLACEMENT = '\ufffd'

/**
 * Refuses arguments that are not UTF-8. Node replaces their bytes, and so would name another key or file. Linux still has the
 * bytes, which distinguish them from an argument with a real replacement character.
 * @throws UsageError
 */
function requireUtf8(args: readonly string[]): void {
  const at = args.findIndex((arg) => arg.includes(REPLACEMENT))
  if (at === -1) return
  const given = rawArguments()?.at(at - args.length)
  if (given === undefined || !isUtf8(given))
    throw new UsageError(`argument ${at + 1} of the command is not UTF-8: give keys and values with --base64`)
}

function rawArguments(): Buffer[] | undefined {
  try {
    const bytes = readFileSync('/proc/self/cmdline')
    const raw: Buffer[] = []
    for (let from = 0, end = bytes.indexOf(0); end !== -1; from = end + 1, end = bytes.indexOf(0, from))
      raw.push(bytes.subarray(from, end))
    return raw
  } catch {
    return undefined
  }
}

/** The error of stdout, once it has been reported. */
let reported: unknown

/** Ends the command silently, or lets it finish its other work, when its reader goes away: the reader has what it wanted. */
function guardOutput(): void {
  process.stderr.on('error', () => {})
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return
    reported = error
    process.exitCode = 1
    process.stderr.write(`perkv: stdout: ${error.message}\n`)
  })
}

/** Words after `--` are arguments. */
function asksForHelp(args: readonly string[]): boolean {
  const end = args.indexOf('--')
  const flags = end === -1 ? args : args.slice(0, end)
  return flags.includes('--help') || flags.includes('-h')
}

const HELP = `A transactional key-value server: Percolator's protocol on LevelDB, behind HTTP.
Usage: perkv COMMAND [flags]

${Object.entries(COMMAND_GROUPS)
  .flatMap(([purpose, commands]) =>
    Object.entries(commands).map(
      ([name, { does }], i) => `${(i === 0 ? purpose : '').padEnd(14)} ${name.padEnd(10)} ${does}\n`,
    ),
  )
  .join('')}
perkv COMMAND --help has the flags of a command, and an example.
Commands talk to --server URL, or PERKV_SERVER; default http://127.0.0.1:7400.
`

/** Errors whose message is one complete line. */
const FOR_PEOPLE = [UsageError, UnusableTable, DataDirectoryError, UnusableFile, UnusableAddress]

function print(text: string): void {
  guardOutput()
  process.stdout.write(text)
}

function fail(error: unknown): void {
  if (error === reported) process.exit(1)
  if (error instanceof Error && 'code' in error && error.code === 'EPIPE') process.exit()
  const isUsage = error instanceof UsageError
  const hint = isUsage ? ` (see perkv ${running === undefined ? '' : `${running} `}--help)` : ''
  process.stderr.write(`${paintFor(process.stderr, process.env)('red', 'perkv:')} ${messageOf(error)}${hint}\n`)
  process.exit(isUsage ? 2 : 1)
}

/** One line for expected failures; a stack only for a defect. */
function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const isForPeople = FOR_PEOPLE.some((kind) => error instanceof kind) || 'code' in error
  return isForPeople ? error.message : (error.stack ?? error.message)
}

main(process.argv.slice(2)).catch(fail)
