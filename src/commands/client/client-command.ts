import { createInterface } from 'node:readline'
import { StreamCut } from '../../client/changes/reconnecting.js'
import { type Connection, ConnectionError, connect, KvError, type OpenTxn, ServerError } from '../../client/index.js'
import { type FlagReader, type Flags, flagsHelp, readFlags, UsageError } from '../../server/flags.js'
import type { Command } from '../command.js'
import { paintFor } from '../paint.js'
import { SERVER_FLAGS, serverAddress } from '../server-flags.js'
import { Screen } from './screen.js'
import { shownText } from './shown.js'

/** A server that has not answered by then counts as unreachable. */
export const CONNECT_MS_MAX = 2000

export interface Call<Name extends string = string> {
  readonly db: Connection
  /** The open transaction of a shell. */
  readonly txn?: OpenTxn | undefined
  readonly flags: FlagReader<Name>
  readonly screen: Screen
  readonly stdin: AsyncIterable<Uint8Array>
  /** Ends a command that runs until it is told to stop. */
  readonly signal: AbortSignal
  /** Asks for a yes; undefined where nobody can be asked. */
  readonly confirm?: ((question: string) => Promise<boolean>) | undefined
  /** Prints a line about the run, apart from the results. */
  note(text: string): void
}

/** A command that is a call or two of the client library. It runs by itself, or in a shell. */
export interface ClientCommand {
  readonly operands: readonly string[]
  readonly flags: Flags
  readonly about: string
  /** Lines that begin with `$`, and their output. */
  readonly example: string
  /** Runs until SIGINT, which is its normal end. */
  readonly isEndless: boolean
  /** @returns what the exit code 1 without a message is for: an absent key, or a no to the question of the command. */
  run(call: Call): Promise<'absent' | 'declined' | undefined>
}

/** Checks the names of the flags that the command reads. */
export function clientCommand<const F extends Flags>(command: {
  readonly operands?: readonly string[]
  readonly flags?: F
  readonly about: string
  readonly example: string
  readonly isEndless?: boolean
  run(call: Call<keyof F & string>): Promise<'absent' | 'declined' | undefined>
}): ClientCommand {
  return { operands: [], isEndless: false, flags: {}, ...command }
}

/** A server that cuts this many streams in a row is given up. */
const CUTS_MAX = 8

/** For the loops of `db.changes`: prints that the server is away and waited for. */
export function noteOfWait(note: Call['note']): (error: unknown) => void {
  return (error) => {
    if (error instanceof StreamCut && error.times >= CUTS_MAX) throw error
    note(`${error instanceof Error ? error.message : error}; trying again`)
  }
}

/** Prints once per request that it is sent again, when that has lasted as long as an unreachable server is waited for. */
export function noteOfRetry(note: Call['note']): (error: Error, tries: number) => void {
  let notedFrom = 0
  return ({ message }, tries) => {
    const now = performance.now()
    if (tries === 1) notedFrom = now + CONNECT_MS_MAX
    if (now < notedFrom) return
    notedFrom = Number.POSITIVE_INFINITY
    note(`${message}; trying again`)
  }
}

export const FORM_FLAGS = {
  json: { help: 'lines of JSON on a terminal too', variable: false },
} as const satisfies Flags

export function usageOf(name: string, { operands, flags }: ClientCommand): string {
  const hasFlags = Object.keys(flags).length > 0
  return [name, ...(hasFlags ? ['[flags]'] : []), ...operands].join(' ')
}

export function commandOf(name: string, command: ClientCommand): Command {
  const flags = { ...command.flags, ...FORM_FLAGS, ...SERVER_FLAGS }
  const own = { ...command.flags, ...FORM_FLAGS }
  return {
    flags,
    operands: command.operands,
    help: `Usage: perkv ${[name, '[flags]', ...command.operands].join(' ')}

${command.about}

Flags:
${flagsHelp(own, 22)}${flagsHelp(SERVER_FLAGS, 22)}
Example:
${command.example.replace(/^/gm, '  ')}
`,
    async run(args, env) {
      const reader = readFlags(flags, args, env, command.operands)
      const { url, token, ca } = serverAddress(reader, env)
      const note = (text: string): void => void process.stderr.write(`perkv: ${shownText(text)}\n`)
      const db = connect(url.href, { token, ca, connectTimeoutMs: CONNECT_MS_MAX, onRetry: noteOfRetry(note) })
      const { isTTY } = process.stdout
      const screen = new Screen(process.stdout, formOf(reader, isTTY), paintFor(process.stdout, env))
      const stop = new AbortController()
      if (command.isEndless) process.once('SIGINT', () => stop.abort())
      process.stdout.on('error', () => process.exit()) // cli.ts has reported the error, unless the pipe was closed.
      try {
        const outcome = await command.run({
          db,
          flags: reader,
          screen,
          stdin: process.stdin,
          signal: stop.signal,
          confirm: process.stdin.isTTY && isTTY ? confirmed : undefined,
          note,
        })
        await screen.flush()
        if (outcome === undefined) return
        process.exitCode = 1
        if (isTTY && outcome === 'absent') note('there is no such key')
      } catch (error) {
        await screen.flush()
        throw failureOf(error)
      } finally {
        await db.close()
      }
    },
  }
}

/** Asks on the terminal. Ctrl-C and Ctrl-D mean no. */
async function confirmed(question: string): Promise<boolean> {
  const lines = createInterface({ input: process.stdin, output: process.stderr })
  const answer = await new Promise<string>((resolve) => {
    lines.once('close', () => resolve(''))
    lines.question(`${question} [y/N] `, resolve)
  })
  lines.close()
  return isYes(answer)
}

export function isYes(answer: string): boolean {
  return /^y(es)?$/i.test(answer.trim())
}

/** @throws UsageError when both forms are given. */
export function formOf(flags: FlagReader<'json' | 'raw'> | FlagReader<'json'>, isTerminal: boolean): Screen['form'] {
  const isRaw = (flags as FlagReader<'raw'>).isSet('raw')
  if (isRaw && flags.isSet('json')) throw new UsageError('--raw does not go with --json')
  if (isRaw) return 'raw'
  return isTerminal && !flags.isSet('json') ? 'table' : 'lines'
}

/** An error that is printed in one line, by cli.ts. Other errors are defects, and keep their stack. */
class Failure extends Error {
  readonly code = 'failed'
}

export function failureOf(error: unknown): unknown {
  if (error instanceof KvError || error instanceof ServerError)
    return new Failure(shownText(`${error.code}: ${error.message}`), { cause: error })
  if (error instanceof RangeError || error instanceof ConnectionError || error instanceof StreamCut)
    return new Failure(shownText(error.message), { cause: error })
  return error
}
