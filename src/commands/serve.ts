import { readConfig, SERVE_FLAGS } from '../config.js'
import { flagsHelp } from '../flags.js'
import { version } from '../version.js'
import type { Command } from './command.js'

export const serve: Command = {
  help: `Usage: perkv serve [flags]

Runs the server until SIGTERM or SIGINT; requests in flight are finished first. SIGHUP reads the files of tokens and
certificates again.

Flags, each also an environment variable; a flag wins:
${flagsHelp(SERVE_FLAGS)}`,

  async run(args, env) {
    const config = readConfig(args, env)
    const { startServer } = await import('../server.js') // Help and a wrong flag need none of it.
    const starting = startServer(config, version())
    // A terminal that goes away ends a server that has nothing to reload, as it ends other programs.
    if (config.tokenFile !== undefined || config.tls !== undefined)
      process.on('SIGHUP', () => void starting.then((server) => server.reload()).catch(() => {}))
    const server = await starting
    const token = config.tokenFile === undefined ? '' : " -H 'authorization: Bearer TOKEN'"
    process.stdout.write(
      `PerKV ${version()} is ready on ${server.url}, data in ${config.data}. Try: curl -X PUT ${server.url}/v1/kv/hello${token} -d world\n`,
    )
    await new Promise((stop) => process.on('SIGTERM', stop).on('SIGINT', stop))
    await server.close()
    process.exit(0) // Connections that outlive it keep no one waiting.
  },
}
