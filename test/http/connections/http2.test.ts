import { describe, expect, test } from 'vitest'
import { Http2Requests } from '../http2-requests.js'
import { expectProblem, okBody, testServers } from '../support.js'

const start = testServers()

describe.each([true, false])('with the fast lane: %s, HTTP/2', (fastLane) => {
  test('is served on the port of HTTP/1.1, to clients that begin with it', async () => {
    const server = await start({ fastLane })
    const client = new Http2Requests(server)
    okBody(await client.send('PUT', '/v1/kv/key', {}, 'value'))
    expect(await client.send('GET', '/v1/kv/key')).toMatchObject({ statusCode: 200, body: 'value' })
    expectProblem(await client.send('GET', '/v1/kv/none'), 'not_found')
    expect((await fetch(`http://127.0.0.1:${await server.listen()}/v1/kv/key`)).status).toBe(200)
  })
})
