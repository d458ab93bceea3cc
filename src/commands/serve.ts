import { readConfig, SERVE_FLAGS } from '../config.js'
import { flagsHelp } from '../flags.js'
import { version } from '../version.js'
import type { Command } from './command.js'

export const serve: Command = {
  help: `Usage: perkv serve [flags]

Runs the server until SIGTERM or SIGINT; requests in flight are finished first.

Flags, each also an environment variable; a flag wins:
${flagsHelp(SERVE_FLAGS)}`,

  async run(args, env) {
    const config = readConfig(args, env)
    const { startServer } = await import('../server.js') // Help and a wrong flag need none of it.
    const server = await startServer(config, version())
    process.stdout.write(
      `PerKV ${version()} is ready on ${server.url}, data in ${config.data}. Try: curl -X PUT ${server.url}/v1/kv/hello -d world\n`,
    )
    await new Promise((stop) => process.on('SIGTERM', stop).on('SIGINT', stop))
    await server.close()
    process.exit(0) // Connections that outlive it keep no one waiting.
  },
}
