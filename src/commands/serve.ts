import { isatty } from 'node:tty'
import { readConfig, SERVE_FLAGS } from '../server/config.js'
import { flagsHelp } from '../server/flags.js'
import { limitFlags } from '../server/limit-flags.js'
import type { RunningServer } from '../server/server.js'
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
Limits, flags like the others; docs/operations.md says what happens beyond them:
${flagsHelp(limitFlags)}`,

  async run(args, env) {
    const config = readConfig(args, env)
    let starting: Promise<RunningServer> | undefined
    const stopping = stopSignal(() => void starting?.then((server) => server.reload()).catch(() => {}))
    const { createLog } = await import('../server/log.js') // Loaded late: help and a wrong flag need none of it.
    const { say } = await import('../server/log-output.js')
    const { startServer } = await import('../server/server.js')
    const log = createLog(config.logLevel)
    starting = startServer(config, version(), log)
    const server = await Promise.race([starting, stopping])
    if (typeof server === 'string') process.exit(0) // No request was served yet, and a start may be cut short at any moment.
    say(`${readyLine(config.tokenFile, server)}\n`)
    server.logStart()
    const signal = await stopping
    const stoppedAtMs = performance.now()
    log.info({ signal }, `${signal}: stopping, requests in flight are finished`)
    await server.close()
    log.info({ durationMs: Math.round(performance.now() - stoppedAtMs) }, 'stopped')
    if (signal === 'SIGHUP') process.kill(process.pid, 'SIGKILL') // Node aborts when it exits without its terminal.
    process.exit(0) // Does not wait for connections that are still open.
  },
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
  return `PerKV ${version()} is ready on ${server.url}, data in ${server.place}. Try: curl -X PUT ${server.url}/v1/kv/hello${trust}${token} -d world`
}
