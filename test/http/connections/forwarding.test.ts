import { spawnSync } from 'node:child_process'
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { openForwarding } from '../../../src/http/connections/forwarding.js'
import { certificate } from '../fast-lane/variants.js'
import { sendTo } from '../support.js'

const HAS_OPENSSL = spawnSync('openssl', ['version']).status === 0

test.skipIf(!HAS_OPENSSL)(
  'nothing is sent to an https server whose certificate is not trusted (needs openssl)',
  async () => {
    const asked: string[] = []
    const owner = createHttpsServer(certificate(), (request, answer) => {
      asked.push(`${request.method} ${request.url}`)
      answer.end('from the owner')
    })
    const forwarding = openForwarding()
    const front = createHttpServer((request: IncomingMessage, answer: ServerResponse) => {
      const { port } = owner.address() as AddressInfo
      forwarding.send(`https://localhost:${port}`, request.url ?? '', request, new AbortController().signal).then(
        (response) => (response === undefined ? answer.end('not reached') : response.pipe(answer)),
        (error: Error) => answer.end(`failed: ${error.message}`),
      )
    })
    try {
      await new Promise<void>((up) => owner.listen(0, 'localhost', up))
      await new Promise<void>((up) => front.listen(0, '127.0.0.1', up))
      const { port } = front.address() as AddressInfo
      for (let i = 0; i < 2; i++) {
        const { body } = await sendTo({ port }, 'PUT', '/v1/txn/x/kv/y', { authorization: 'Bearer secret' }, 'value')
        expect(body).toBe('not reached')
      }
      expect(asked).toEqual([])
    } finally {
      forwarding.close()
      for (const server of [owner, front]) {
        server.close()
        server.closeAllConnections()
      }
    }
  },
)
