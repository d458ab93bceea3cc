// Servers on one table of a PostgreSQL of their own, which syncs, and whose other settings are the default ones.
import { execFileSync } from 'node:child_process'
import { PostgresServer } from '../../test/postgres/server.mjs'
import { withServersOn } from './table-servers.mjs'

const CLI = new URL('../../dist/cli.js', import.meta.url).pathname

/** Runs `use` with `count` servers and their PostgreSQL, which is in the directory for temporary files. */
export async function withServers({ count }, use) {
  const postgres = await PostgresServer.start(['shared_buffers = 128MB'])
  const stop = () => process.kill(postgres.pid, 'SIGQUIT')
  process.once('exit', stop)
  try {
    execFileSync(process.execPath, [CLI, 'store', 'init', postgres.url()], { stdio: ['ignore', 'ignore', 'inherit'] })
    return await withServersOn(postgres.url(), count, (servers) => use({ postgres, ...servers }))
  } finally {
    process.removeListener('exit', stop)
    await postgres.end()
  }
}
