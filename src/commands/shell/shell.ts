import { createInterface, type Interface } from 'node:readline'
import { type Connection, connect, type OpenTxn } from '../../client/index.js'
import { didYouMean, nameInError } from '../../errors/nearest-name.js'
import { type Flags, flagsHelp, oneOf, readFlags, UsageError } from '../../server/flags.js'
import {
  type ClientCommand,
  CONNECT_MS_MAX,
  clientCommand,
  FORM_FLAGS,
  failureOf,
  formOf,
  isYes,
  noteOfRetry,
  usageOf,
} from '../client/client-command.js'
import { CLIENT_COMMANDS } from '../client/client-commands.js'
import { Screen } from '../client/screen.js'
import { shownText } from '../client/shown.js'
import { timeOf } from '../client/time-of.js'
import { printWritten } from '../client/written.js'
import type { Command } from '../command.js'
import { paintFor } from '../paint.js'
import { SERVER_FLAGS, serverAddress } from '../server-flags.js'
import { complete } from './complete.js'
import { HISTORY_LINES_MAX, HistoryFile } from './history-file.js'
import { splitWords } from './split-words.js'

const SHELL_FLAGS = {
  'no-history': { help: 'keeps no lines for the next shell', variable: false },
  ...FORM_FLAGS,
  ...SERVER_FLAGS,
} as const satisfies Flags

export const shell: Command = {
  flags: SHELL_FLAGS,
  operands: [],
  help: `Usage: perkv shell [flags]

Runs the commands that read and write a server line by line, with completion of commands, flags and keys by Tab, and with begin,
commit and rollback of a transaction. Ctrl-C ends a command, Ctrl-D the shell. Lines are kept in $XDG_STATE_HOME/perkv/history,
except those that begin with a blank. Lines from a pipe are run too; the exit code is 1 if one has failed.

Flags:
${flagsHelp(SHELL_FLAGS, 22)}
Example:
  $ perkv shell
  perkv> put hello world
  perkv> scan --prefix h
`,

  async run(args, env) {
    const flags = readFlags(SHELL_FLAGS, args, env)
    const { url, token, ca } = serverAddress(flags, env)
    const onRetry = noteOfRetry((text) => void process.stderr.write(`${shownText(text)}\n`))
    const db = connect(url.href, { token, ca, connectTimeoutMs: CONNECT_MS_MAX, onRetry })
    const { stdin, stdout } = process
    const isTerminal = stdin.isTTY && stdout.isTTY
    const history = new HistoryFile(isTerminal && !flags.isSet('no-history') ? HistoryFile.pathOf(env) : undefined)
    const isJson = flags.isSet('json')
    stdout.on('error', () => process.exit())
    const shell = new Shell(db, isTerminal, isJson)
    const lines = createInterface({
      input: stdin,
      ...(isTerminal && { output: stdout }),
      terminal: isTerminal,
      history: history.load(),
      historySize: HISTORY_LINES_MAX,
      removeHistoryDuplicates: true,
      completer: (line: string, done: (error: null, result: [string[], string]) => void) =>
        void complete(line, shell.commands, db).then((result) => done(null, result)),
    })
    try {
      if (isTerminal) stdout.write(`PerKV ${(await db.status()).version} at ${url.origin}. help lists the commands.\n`)
      await shell.run(lines, history)
    } catch (error) {
      throw failureOf(error)
    } finally {
      lines.close()
      await shell.end()
      await db.close()
    }
  },
}

const INTERRUPTED = Symbol('interrupted')

class Shell {
  readonly #db: Connection
  readonly #isTerminal: boolean
  readonly #isJson: boolean
  /** Interrupts the running command. */
  #interrupt: (() => void) | undefined
  #txn: OpenTxn | undefined
  #isOver = false
  #lines: Interface | undefined

  readonly #own: Readonly<Record<string, ClientCommand>> = {
    begin: clientCommand({
      flags: {
        pessimistic: { help: 'writes lock their keys at once', variable: false },
        isolation: { value: 'LEVEL', help: 'snapshot (default) or serializable', variable: false },
      },
      about: 'Begins a transaction. get, scan, put and del are in it, until commit or rollback.',
      example: 'perkv> begin',
      run: async ({ db, flags, screen }) => {
        if (this.#txn !== undefined) throw new UsageError('a transaction is open: commit or rollback')
        const isolation = oneOf(flags.optional('isolation') ?? { text: 'snapshot', from: '' }, [
          'snapshot',
          'serializable',
        ])
        this.#txn = await db.begin({ isolation, mode: flags.isSet('pessimistic') ? 'pessimistic' : 'optimistic' })
        const { startTs } = this.#txn
        if (screen.form === 'lines') await screen.line({ startTs })
        else await screen.record([['start_ts', `${startTs}  ${timeOf(startTs)}`]])
        return undefined
      },
    }),
    commit: clientCommand({
      about: 'Commits the transaction: all of its writes, or none where something has changed meanwhile.',
      example: 'perkv> commit',
      run: async ({ screen }) => {
        const txn = this.#open()
        this.#txn = undefined
        return printWritten(screen, await txn.commit())
      },
    }),
    rollback: clientCommand({
      about: 'Ends the transaction without its writes.',
      example: 'perkv> rollback',
      run: async () => {
        const txn = this.#open()
        this.#txn = undefined
        await txn.rollback()
        return undefined
      },
    }),
    help: clientCommand({
      operands: ['[COMMAND]'],
      about: 'Lists the commands, or says more about one.',
      example: 'perkv> help scan',
      run: async ({ flags, screen }) => {
        await screen.write(this.#help(flags.positionals[0]))
        return undefined
      },
    }),
    exit: clientCommand({
      about: 'Ends the shell, as Ctrl-D does. An open transaction is rolled back.',
      example: 'perkv> exit',
      run: async () => {
        this.#isOver = true
        return undefined
      },
    }),
  }

  readonly commands: ReadonlyMap<string, ClientCommand>

  constructor(db: Connection, isTerminal: boolean, isJson: boolean) {
    this.#db = db
    this.#isTerminal = isTerminal
    this.#isJson = isJson
    const all = Object.entries({ ...CLIENT_COMMANDS, ...this.#own })
    this.commands = new Map(
      all.map(([name, command]) => [name, { ...command, flags: { ...command.flags, ...FORM_FLAGS } }]),
    )
  }

  async run(lines: Interface, history: HistoryFile): Promise<void> {
    lines.on('SIGINT', () => {
      if (this.#interrupt !== undefined) return this.#interrupt()
      process.stdout.write('^C\n')
      lines.write(null, { ctrl: true, name: 'e' })
      lines.write(null, { ctrl: true, name: 'u' })
    })
    this.#lines = this.#isTerminal ? lines : undefined
    if (!this.#isTerminal) process.once('SIGINT', () => (this.#interrupt ?? process.exit)())
    this.#prompt(lines)
    for await (const line of lines) {
      history.add(line)
      await this.#runLine(line)
      if (this.#isOver) break
      this.#prompt(lines)
    }
    if (this.#isTerminal && !this.#isOver) process.stdout.write('\n')
  }

  /** Rolls back an open transaction. */
  async end(): Promise<void> {
    if (this.#txn === undefined) return
    this.#note('the open transaction is rolled back')
    await this.#txn.rollback().catch((error: unknown) => this.#fail(error))
  }

  #prompt(lines: Interface): void {
    if (!this.#isTerminal) return
    lines.setPrompt(this.#txn === undefined ? 'perkv> ' : 'perkv*> ')
    lines.prompt()
  }

  /** Runs one line, and prints its error. */
  async #runLine(line: string): Promise<void> {
    try {
      // Node decodes bytes that are not UTF-8 to this character. A key that really has it can be given in base64.
      if (line.includes('\ufffd')) throw new UsageError('the line is not UTF-8: give keys and values with --base64')
      const { words, openQuote } = splitWords(line)
      const [name, ...args] = words.map(({ text }) => text)
      if (name === undefined || name.startsWith('#')) return
      if (openQuote !== undefined) throw new UsageError(`the quote ${openQuote} is not closed`)
      const command = this.commands.get(name === 'quit' ? 'exit' : name)
      if (command === undefined) throw this.#unknown(name)
      if (args.includes('--help')) process.stdout.write(this.#help(name))
      else await this.#runCommand(command, args)
    } catch (error) {
      this.#fail(error)
    }
  }

  async #runCommand(command: ClientCommand, args: readonly string[]): Promise<void> {
    const flags = readFlags(command.flags, args, {}, command.operands)
    const { stdout } = process
    const form = this.#isJson ? 'lines' : formOf(flags, stdout.isTTY)
    const screen = new Screen(stdout, form, paintFor(stdout, process.env))
    const stop = new AbortController()
    const interrupted = new Promise<typeof INTERRUPTED>((resolve) => {
      this.#interrupt = () => {
        stop.abort()
        if (command.isEndless) return
        screen.close()
        resolve(INTERRUPTED)
      }
    })
    const note = (text: string): void => this.#note(text)
    const lines = this.#lines
    const confirm = (question: string): Promise<boolean> =>
      new Promise((resolve) =>
        lines?.question(`${question} [y/N] `, { signal: stop.signal }, (answer) => resolve(isYes(answer))),
      )
    const running = command.run({
      db: this.#db,
      txn: this.#txn,
      flags,
      screen,
      stdin: NO_STDIN,
      signal: stop.signal,
      ...(lines && { confirm }),
      note,
    })
    try {
      const outcome = await Promise.race([running, interrupted])
      await screen.flush()
      if (outcome === INTERRUPTED) {
        running.catch(() => {})
        this.#note('interrupted; a write may have taken effect')
      }
      if (outcome === 'absent') this.#note('there is no such key')
      if (outcome !== undefined) process.exitCode = this.#isTerminal ? 0 : 1
    } finally {
      this.#interrupt = undefined
    }
  }

  #open(): OpenTxn {
    if (this.#txn === undefined) throw new UsageError('there is no open transaction: begin one')
    return this.#txn
  }

  #unknown(name: string): UsageError {
    const meant = didYouMean(name, this.commands.keys()) || ': help lists them'
    return new UsageError(`unknown command "${nameInError(name)}"${meant}`)
  }

  #help(name: string | undefined): string {
    const command = name === undefined ? undefined : this.commands.get(name)
    if (name !== undefined && command === undefined) throw this.#unknown(name)
    if (name !== undefined && command !== undefined)
      return `${usageOf(name, command)}\n\n${command.about}\n\n${flagsHelp(command.flags, 22)}`
    return [...this.commands].map(([name, command]) => `  ${usageOf(name, command)}\n`).join('')
  }

  #note(text: string): void {
    process.stderr.write(`${shownText(text)}\n`)
  }

  #fail(error: unknown): void {
    const failure = failureOf(error)
    this.#note(failure instanceof Error ? failure.message : String(failure))
    if (!this.#isTerminal) process.exitCode = 1
  }
}

/** The shell itself reads stdin. */
const NO_STDIN: AsyncIterable<Uint8Array> = {
  [Symbol.asyncIterator]() {
    throw new UsageError('a shell has no stdin for a command: give the value, or a file')
  },
}
