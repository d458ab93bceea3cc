import { EventEmitter } from 'node:events'
import type { Server } from 'node:http'
import { expect, test } from 'vitest'
import { Pacing, paceRequests } from '../../../src/http/admission/pacing.js'

interface Asked {
  readonly url: string
  destroyed: boolean
}

/** A server that many ask within one turn of the event loop. */
function serverOf(waitingMax = 1000) {
  const server = new EventEmitter()
  const started: string[] = []
  server.on('request', ({ url }: Asked) => started.push(url))
  paceRequests(server as Server, new Pacing(waitingMax))
  const ask = (url: string): Asked => {
    const request = { url, destroyed: false }
    server.emit('request', request, {})
    return request
  }
  return { server, started, ask }
}

const turn = (): Promise<void> => new Promise((next) => setImmediate(next))
const urls = Array.from({ length: 150 }, (_, i) => `/${i}`)

test('some requests are started a turn, in order of arrival, and the next turn goes on', async () => {
  const { started, ask } = serverOf()
  for (const url of urls) ask(url)
  expect(started).toEqual(urls.slice(0, 64))
  await turn()
  expect(started).toEqual(urls.slice(0, 128))
  ask('/late')
  await turn()
  expect(started).toEqual([...urls, '/late'])
  await turn()
  ask('/later')
  expect(started.at(-1)).toBe('/later')
})

test('a probe does not wait, and who has gone is left out', async () => {
  const { started, ask } = serverOf()
  const [, ...requests] = urls.map(ask)
  for (const request of requests) request.destroyed = true
  ask('/livez')
  expect(started.at(-1)).toBe('/livez')
  for (let i = 0; i < 3; i++) await turn()
  expect(started).toEqual([...urls.slice(0, 64), '/livez'])
})

test('while connections come in fewer are started', () => {
  const { server, started, ask } = serverOf()
  server.emit('connection')
  for (const url of urls) ask(url)
  expect(started).toHaveLength(4)
})

test('no more wait than may', () => {
  const { started, ask } = serverOf(10)
  for (const url of urls) ask(url)
  expect(started).toHaveLength(140)
})
