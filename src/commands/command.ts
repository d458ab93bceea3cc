export interface Command {
  readonly help: string
  /**
   * Resolves when the command is done. The exit code is 0 unless the command set `process.exitCode`.
   * @param args arguments after the command's name.
   * @throws UsageError, and errors that end the command: cli.ts prints them as one line.
   */
  run(args: readonly string[], env: NodeJS.ProcessEnv): Promise<void>
}
