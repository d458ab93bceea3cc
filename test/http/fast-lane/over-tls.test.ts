import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import { expect, test, vi } from 'vitest'
import { openMemoryStore } from '../../../src/store/leveldb/leveldb-store.js'
import { serve } from '../support.js'
import { certificate } from './variants.js'

/** The writes of a TLS connection end later than those of a plain one, and perhaps not before it closes. */
test('clients that hang up in a long answer, in front of a request for node:http, leave nothing behind', {
  tags: ['long'],
}, async () => {
  const directory = await mkdtemp(join(tmpdir(), 'perkv-tls-'))
  const server = await serve(await openMemoryStore(), directory, { tls: certificate() })
  const port = await server.listen()
  await server.put('long', 'v'.repeat(900_000))
  const body = JSON.stringify({ ops: [{ op: 'get', key: 'long' }] })
  const head = 'Host: a\r\nContent-Type: application/json\r\nContent-Length:'
  const bytes = `POST /v1/txn HTTP/1.1\r\n${head} ${body.length}\r\n\r\n${body}GET /v1/kv/a?ts=1 HTTP/1.1\r\nHost: a\r\n\r\n`
  for (let i = 0; i < 60; i++) {
    const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false }).on('error', () => {})
    await once(socket, 'secureConnect')
    socket.write(bytes)
    if (i % 3 > 0) await once(socket, 'data')
    for (let turns = 0; turns < i % 20; turns++) await new Promise((next) => setImmediate(next))
    socket.destroy()
  }
  const connections = () =>
    new Promise<number>((resolve) => server.app.server.getConnections((_, count) => resolve(count)))
  await vi.waitFor(async () => expect(await connections()).toBe(0), { timeout: 30_000 })
  expect(server.store.answers.heldBytes).toBe(0)
  await server.app.close()
  await server.database.close()
  await rm(directory, { recursive: true, force: true })
})
