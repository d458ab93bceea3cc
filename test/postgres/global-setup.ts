import { PostgresServer } from './server.mjs'

/** The one PostgreSQL of all files, each of whose tests has a table of its own. */
export default async function setup(): Promise<() => Promise<void>> {
  const server = await PostgresServer.start()
  process.env['PERKV_TEST_POSTGRES'] = server.url()
  return () => server.end()
}
