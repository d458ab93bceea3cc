import type { Flags } from '../server/flags.js'

export interface Command {
  readonly flags: Flags
  /** Names of the positional arguments; those in `[brackets]` may be left out. */
  readonly operands: readonly string[]
  readonly help: string
  /**
   * Resolves when the command is done. The exit code is 0 unless the command set `process.exitCode`.
   * @param args arguments after the command's name.
   * @param warning one line, which a server logs; for other commands cli.ts prints it.
   * @throws UsageError, and errors that end the command: cli.ts prints them as one line.
   */
  run(args: readonly string[], env: NodeJS.ProcessEnv, warning?: string): Promise<void>
}

export interface CommandEntry {
  readonly does: string
  load(): Promise<Command>
}
