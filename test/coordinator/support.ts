import { type Connection, type ConnectOptions, connect } from '../../src/client/index.js'
import type { TestServer } from '../http/support.js'

/** A client of a server that has a port. */
export async function connectTo(server: TestServer, options: ConnectOptions = {}): Promise<Connection> {
  const address = server.app.server.address()
  const port = address === null || typeof address === 'string' ? await server.listen() : address.port
  return connect(`http://127.0.0.1:${port}/`, options)
}

export async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

/** What a promise is rejected with. */
export async function failureOf(promise: Promise<unknown>): Promise<Error> {
  const outcome = await promise.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  )
  if ('error' in outcome && outcome.error instanceof Error) return outcome.error
  throw new Error(`expected a failure, got ${JSON.stringify(outcome)}`)
}
