import { accessSync, constants, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { isatty } from 'node:tty'
import { readConfig, SERVE_FLAGS } from '../server/config.js'
import { flagsHelp } from '../server/flags.js'
import { limitFlags } from '../server/limit-flags.js'
import type { RunningServer } from '../server/server.js'
import { UnusableFile } from '../server/unusable-file.js'
import { version } from '../version.js'
import type { Command } from './command.js'

const OWN_FLAGS = Object.fromEntries(Object.entries(SERVE_FLAGS).filter(([name]) => !(name in limitFlags)))

export const serve: Command = {
  flags: SERVE_FLAGS,
  operands: [],
  help: `Usage: perkv serve [flags]

Runs the server until SIGTERM or SIGINT; requests in flight are finished first. SIGHUP reads the files of tokens and
certificates again.

Flags, each also an environment variable; a flag wins:
${flagsHelp(OWN_FLAGS)}
Limits, flags like the others; docs/flags.md says what happens beyond them:
${flagsHelp(limitFlags)}`,

  async run(args, env, warning) {
    const config = readConfig(args, env)
    let starting: Promise<RunningServer> | undefined
    const stopping = stopSignal(() => void starting?.then((server) => server.reload()).catch(() => {}))
    const { createLog, logLine } = await import('../server/log.js') // Loaded late: help and a wrong flag do not need it.
    const { formatOfStdout, logOutput, say } = await import('../server/log-output.js')
    const { startServer } = await import('../server/server.js')
    const { logFormat = formatOfStdout(env['JOURNAL_STREAM']) } = config
    const log = createLog(config.logLevel, logOutput(logFormat))
    if (warning !== undefined) log.warn(warning)
    const { pidFile } = config
    if (pidFile !== undefined) usableFile(pidFile, () => accessSync(dirname(resolve(pidFile)), constants.W_OK))
    starting = startServer(config, version(), log)
    const server = await Promise.race([starting, stopping])
    if (typeof server === 'string') process.exit(0) // No request was served yet, and a start may be cut short at any moment.
    const removePidFile = await withPidFile(pidFile, server)
    const ready = readyLine(config.tokenFile, server)
    say(logFormat === 'json' ? logLine('info', { url: server.url }, ready) : `${ready}\n`) // At every --log-level.
    server.logStart()
    const signal = await Promise.race([stopping, server.failed])
    if (typeof signal !== 'string') {
      await server.close()
      throw signal
    }
    const stoppedAtMs = performance.now()
    log.info({ signal }, `${signal}: stopping, requests in flight are finished`)
    await server.close()
    log.info({ durationMs: Math.round(performance.now() - stoppedAtMs) }, 'stopped')
    removePidFile()
    if (signal === 'SIGHUP') process.kill(process.pid, 'SIGKILL') // Node aborts when it exits without its terminal.
    process.exit(0) // Does not wait for connections that are still open.
  },
}

/**
 * Called once the server has its data and its port, so that a second server does not replace the pid of the first.
 * @returns a function that removes the file, unless another process has written it since.
 * @throws UnusableFile
 */
async function withPidFile(path: string | undefined, server: RunningServer): Promise<() => void> {
  if (path === undefined) return () => {}
  const text = `${process.pid}\n`
  try {
    usableFile(path, () => writeFileSync(path, text))
  } catch (error) {
    await server.close()
    throw error
  }
  const remove = (): void => {
    try {
      if (readFileSync(path, 'utf8') === text) rmSync(path)
    } catch {} // The file is gone already.
  }
  process.on('exit', remove)
  return remove
}

function usableFile(path: string, use: () => void): void {
  try {
    use()
  } catch (cause) {
    throw new UnusableFile(`${path} cannot be used: ${cause instanceof Error ? cause.message : cause}`, { cause })
  }
}

/**
 * Resolves with the first signal that ends the server. SIGHUP ends it only when its terminal went away, as it ends other
 * programs. Under nohup there is no terminal, and SIGHUP reloads.
 */
function stopSignal(reload: () => void): Promise<NodeJS.Signals> {
  const hadTerminal = isatty(0)
  return new Promise((stop) => {
    process.on('SIGTERM', stop).on('SIGINT', stop)
    process.on('SIGHUP', () => (hadTerminal && !isatty(0) ? stop('SIGHUP') : reload()))
  })
}

function readyLine(
  tokenFile: string | undefined,
  server: { url: string; place: string; caFile?: string | undefined },
): string {
  const trust = server.caFile === undefined ? '' : ` --cacert ${server.caFile}`
  const token = tokenFile === undefined ? '' : " -H 'authorization: Bearer TOKEN'"
  return `PerKV ${version()} is ready on ${server.url}, data in ${server.place}. Console: ${server.url}/console, reference: ${server.url}/docs. Try: curl -X PUT ${server.url}/v1/kv/hello${trust}${token} -d world.`
}
