import { describe, expect, test } from 'vitest'
import { expectProblem, type Json, listOf, okBody, type TestServer, testServers } from './support.js'

const start = testServers()

async function send(server: TestServer, method: 'GET' | 'PUT' | 'POST', path: string, body?: Json): Promise<Json> {
  const headers = body === undefined ? {} : { 'content-type': 'application/json' }
  const sent = await server.send(method, path, headers, body && JSON.stringify(body))
  expect(sent.statusCode, sent.body).toBeLessThan(300)
  return sent.json() as Json
}

/** The names of all pages. */
async function pages(server: TestServer, path: string, query: string, list: string, field: string) {
  const seen: unknown[][] = []
  for (let rest: string | undefined = query; rest !== undefined; ) {
    const page: Json = okBody(await server.send('GET', `${path}?${rest}`))
    seen.push(listOf(page, list).map((entry) => entry[field]))
    rest = page['cursor'] === undefined ? undefined : `cursor=${page['cursor']}`
  }
  return seen
}

const names = Array.from({ length: 5 }, (_, i) => `p-${i}`)

const LISTS = [
  {
    ...{ list: 'leases', path: '/v1/leases', field: 'name' },
    make: (server: TestServer, name: string) =>
      send(server, 'PUT', `/v1/leases/${name}`, { holder: 'h', ttl_ms: 60_000 }),
  },
  {
    ...{ list: 'observers', path: '/v1/observers', field: 'name' },
    make: (server: TestServer, name: string) => send(server, 'PUT', `/v1/observers/${name}`, { prefix: name }),
  },
  {
    ...{ list: 'consumers', path: '/v1/consumers', field: 'name' },
    make: (server: TestServer, name: string) => send(server, 'PUT', `/v1/consumers/${name}`, { prefix: name }),
  },
]

describe.each(LISTS)('the list of $list', ({ list, path, field, make }) => {
  test('comes in pages, of a prefix', async () => {
    const server = await start()
    for (const name of ['q', ...names.slice().reverse(), 'a']) await make(server, name)
    expect(await pages(server, path, 'limit=2&prefix=p-', list, field)).toEqual([
      names.slice(0, 2),
      names.slice(2, 4),
      names.slice(4),
    ])
    expect(await pages(server, path, 'limit=7', list, field)).toEqual([['a', ...names, 'q']])
  })

  test('a limit that is none and a cursor of another list or prefix are refused', async () => {
    const server = await start()
    for (const name of names) await make(server, name)
    const { cursor } = okBody(await server.send('GET', `${path}?limit=1`))
    for (const [query, field] of [
      ['limit=0', 'limit'],
      ['limit=10001', 'limit'],
      ['cursor=abc', 'cursor'],
      [`cursor=${cursor}&prefix=p`, 'cursor'],
      ['name=p', 'name'],
    ] as const)
      expectProblem(await server.send('GET', `${path}?${query}`), 'invalid_argument', { field })
    for (const other of [...LISTS.map(({ path }) => path), '/v1/admin/pins'])
      if (other !== path)
        expectProblem(await server.send('GET', `${other}?cursor=${cursor}`), 'invalid_argument', { field: 'cursor' })
  })
})

test('pins come in pages too, the oldest snapshots first', async () => {
  const server = await start()
  const made: Json[] = []
  for (let i = 0; i < 5; i++) made.push(await send(server, 'POST', '/v1/admin/pins', {}))
  const [oldest] = made
  made.push(await send(server, 'POST', '/v1/admin/pins', { ts: Number(oldest?.['ts']) }))
  const sorted = made.sort(
    (a, b) => Number(a['ts']) - Number(b['ts']) || (String(a['pin']) < String(b['pin']) ? -1 : 1),
  )
  const ids = sorted.map(({ pin }) => pin)
  expect(await pages(server, '/v1/admin/pins', 'limit=2', 'pins', 'pin')).toEqual([
    ids.slice(0, 2),
    ids.slice(2, 4),
    ids.slice(4),
  ])
  const prefix = String(ids[3]).slice(0, 8)
  expect(await pages(server, '/v1/admin/pins', `prefix=${prefix}`, 'pins', 'pin')).toEqual([[ids[3]]])
})
