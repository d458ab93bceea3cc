/** One command of `perkv`: a file each in this directory. */
export interface Command {
  readonly help: string
  /**
   * @param args what stands behind the command's name.
   * @returns when it is done. The exit code is 0 unless it set `process.exitCode`.
   * @throws UsageError, and what it can't go on after: cli.ts makes one line of it.
   */
  run(args: readonly string[], env: NodeJS.ProcessEnv): Promise<void>
}
