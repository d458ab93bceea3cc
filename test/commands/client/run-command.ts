import { PassThrough } from 'node:stream'
import type { Connection, OpenTxn } from '../../../src/client/index.js'
import { formOf } from '../../../src/commands/client/client-command.js'
import { CLIENT_COMMANDS } from '../../../src/commands/client/client-commands.js'
import { Screen } from '../../../src/commands/client/screen.js'
import { top } from '../../../src/commands/client/top.js'
import { readFlags } from '../../../src/server/flags.js'

const COMMANDS = { ...CLIENT_COMMANDS, top }

export interface RunOptions {
  readonly isTerminal?: boolean
  readonly columns?: number
  readonly stdin?: string | Uint8Array
  readonly txn?: OpenTxn
  readonly signal?: AbortSignal
  readonly confirm?: (question: string) => Promise<boolean>
  /** Called with everything that has been printed so far. */
  readonly onOutput?: (output: string) => void
}

export interface Ran {
  readonly output: Buffer
  readonly outcome: 'absent' | 'declined' | undefined
  readonly notes: readonly string[]
}

/** Runs a command as the command line does, within this process. */
export async function runCommand(
  db: Connection,
  [name, ...args]: readonly string[],
  { isTerminal = false, columns = 80, stdin = '', txn, signal, confirm, onOutput }: RunOptions = {},
): Promise<Ran> {
  const command = COMMANDS[name as keyof typeof COMMANDS]
  const flags = readFlags({ ...command.flags, json: { help: '' } }, args, {}, command.operands)
  const chunks: Buffer[] = []
  const sink = Object.assign(new PassThrough(), { columns })
  sink.on('data', (chunk: Buffer) => {
    chunks.push(chunk)
    onOutput?.(Buffer.concat(chunks).toString())
  })
  const screen = new Screen(sink, formOf(flags, isTerminal))
  const notes: string[] = []
  const outcome = await command.run({
    db,
    txn,
    flags,
    screen,
    stdin: (async function* () {
      yield Buffer.from(stdin)
    })(),
    confirm,
    signal: signal ?? new AbortController().signal,
    note: (text) => void notes.push(text),
  })
  await screen.flush()
  return { output: Buffer.concat(chunks), outcome, notes }
}

/** The lines of JSON that a command prints into a pipe. */
export async function linesOf(db: Connection, args: readonly string[], options: RunOptions = {}): Promise<unknown[]> {
  return parsed((await runCommand(db, args, options)).output.toString())
}

export function parsed(output: string): unknown[] {
  return output
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line))
}
