import { EventEmitter } from 'node:events'
import type { Server } from 'node:http'
import { expect, test } from 'vitest'
import { paceRequests } from '../../../src/http/admission/pacing.js'

interface Asked {
  readonly url: string
  destroyed: boolean
}

/** A server that many ask within one turn of the event loop. */
function serverOf(waitingMax = 1000) {
  const server = new EventEmitter()
  const begun: string[] = []
  server.on('request', ({ url }: Asked) => begun.push(url))
  paceRequests(server as Server, waitingMax)
  const ask = (url: string): Asked => {
    const request = { url, destroyed: false }
    server.emit('request', request, {})
    return request
  }
  return { server, begun, ask }
}

const turn = (): Promise<void> => new Promise((next) => setImmediate(next))
const urls = Array.from({ length: 150 }, (_, i) => `/${i}`)

test('some requests are begun a turn, in order of arrival, and the next turn goes on', async () => {
  const { begun, ask } = serverOf()
  for (const url of urls) ask(url)
  expect(begun).toEqual(urls.slice(0, 64))
  await turn()
  expect(begun).toEqual(urls.slice(0, 128))
  ask('/late')
  await turn()
  expect(begun).toEqual([...urls, '/late'])
  await turn()
  ask('/later')
  expect(begun.at(-1)).toBe('/later')
})

test('a probe does not wait, and who has gone is left out', async () => {
  const { begun, ask } = serverOf()
  const [, ...requests] = urls.map(ask)
  for (const request of requests) request.destroyed = true
  ask('/livez')
  expect(begun.at(-1)).toBe('/livez')
  for (let i = 0; i < 3; i++) await turn()
  expect(begun).toEqual([...urls.slice(0, 64), '/livez'])
})

test('while connections come in fewer are begun', () => {
  const { server, begun, ask } = serverOf()
  server.emit('connection')
  for (const url of urls) ask(url)
  expect(begun).toHaveLength(4)
})

test('no more wait than may', () => {
  const { begun, ask } = serverOf(10)
  for (const url of urls) ask(url)
  expect(begun).toHaveLength(140)
})
