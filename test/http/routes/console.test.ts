import { existsSync } from 'node:fs'
import { expect, test } from 'vitest'
import { testServers } from '../support.js'

const start = testServers()
const TOKENS = 'rw token-of-a-writer\nro token-of-a-reader\nro token-of-one-app prefix=app/'
const as = (who: string) => ({ authorization: `Bearer token-of-${who}` })

/** `npm run build` makes the page. */
const isBuilt = existsSync(new URL('../../../dist/console/index.html', import.meta.url))
if (!isBuilt) console.warn('The files of /console are not tested: npm run build makes them')

test.skipIf(!isBuilt)(
  'the page needs no token, may load from its own origin only, and is asked for again by ETag',
  async () => {
    const { app } = await start({ tokens: TOKENS })
    for (const [path, type] of [
      ['/console', 'text/html; charset=utf-8'],
      ['/console/app.js', 'text/javascript; charset=utf-8'],
      ['/console/style.css', 'text/css; charset=utf-8'],
      ['/docs', 'text/html; charset=utf-8'],
      ['/docs/page.js', 'text/javascript; charset=utf-8'],
      ['/docs/viewer.js', 'text/javascript; charset=utf-8'],
      ['/docs/style.css', 'text/css; charset=utf-8'],
    ] as const) {
      const plain = await app.inject(path)
      expect([plain.statusCode, plain.headers['content-type']]).toEqual([200, type])
      expect(plain.headers['content-security-policy']).toMatch(
        /^default-src 'none'; script-src 'self'; style-src 'self'( 'unsafe-inline')?; connect-src 'self';/,
      )
      expect(plain.headers['x-content-type-options']).toBe('nosniff')
      expect(String(plain.headers['content-security-policy']).includes('unsafe')).toBe(path.startsWith('/docs'))
      if (path !== '/docs/viewer.js') expect(plain.body).not.toMatch(/(?:src|href)="https?:/)
      const gzipped = await app.inject({ url: path, headers: { 'accept-encoding': 'gzip, br' } })
      expect(gzipped.headers['content-encoding']).toBe('gzip')
      expect(gzipped.rawPayload.length).toBeLessThan(plain.rawPayload.length)
      const again = await app.inject({ url: path, headers: { 'if-none-match': String(plain.headers['etag']) } })
      expect([again.statusCode, again.body]).toEqual([304, ''])
    }
    expect((await app.inject({ url: '/console/', headers: as('a-writer') })).statusCode).toBe(404)
    expect((await app.inject({ url: '/console/..%2Fcli.js', headers: as('a-writer') })).statusCode).toBe(404)
  },
)

test.skipIf(isBuilt)('a page that was not built is 404 and says why', async () => {
  const { app } = await start()
  for (const [path, name] of [
    ['/console', 'the console'],
    ['/docs', 'the reference'],
  ] as const) {
    const answer = await app.inject(path)
    expect([answer.statusCode, answer.json<{ detail: string }>().detail]).toEqual([
      404,
      `${name} was not built: run npm run build`,
    ])
  }
})

test('/ leads browsers to the console, and tells others what there is, without a token', async () => {
  const { app } = await start({ tokens: TOKENS })
  const accept = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'
  const { statusCode, headers } = await app.inject({ url: '/', headers: { accept } })
  expect([statusCode, headers['location']]).toEqual([303, 'console'])
  const answer = await app.inject({ url: '/', headers: { accept: '*/*' } })
  expect([answer.statusCode, answer.json()]).toMatchObject([
    404,
    { code: 'not_found', detail: 'nothing is at /: see /console, /docs and /openapi.json' },
  ])
})

test('/v1/status tells a caller what its token may do', async () => {
  const server = await start({ tokens: TOKENS })
  const accessOf = async (who: string) => (await server.get('/v1/status', as(who))).json<{ access: object }>().access
  expect(await accessOf('a-writer')).toEqual({ may_write: true })
  expect(await accessOf('a-reader')).toEqual({ may_write: false })
  expect(await accessOf('one-app')).toEqual({ may_write: false, prefixes: ['app/'] })
  expect((await (await start()).get('/v1/status')).json()).toMatchObject({ access: { may_write: true } })
})

test('get_lock_wait_info tells who waits for whom, up to its limit, to tokens that reach every key', async () => {
  const server = await start({ tokens: TOKENS })
  const call = (who: string, name: string, body: object) => server.post(`/v1/percolator/${name}`, body, as(who))
  const acquire = (startTs: number, key: string) =>
    call('a-writer', 'acquire_pessimistic_lock', {
      ...{
        keys: [key],
        primary: key,
        start_ts: startTs,
        for_update_ts: startTs,
        wait_timeout: 60_000,
        lock_ttl: 60_000,
      },
    })
  const waits = async (body = {}) => {
    const answer = await call('a-reader', 'get_lock_wait_info', body)
    return answer.json<{ entries: readonly object[] }>().entries
  }
  expect(await waits()).toEqual([])
  await acquire(10, 'a')
  await acquire(11, 'b')
  const waiting = [acquire(20, 'a'), acquire(21, 'a'), acquire(20, 'b')]
  const all = [
    { txn: 20, wait_for_txn: 10, key: 'a' },
    { txn: 21, wait_for_txn: 10, key: 'a' },
    { txn: 20, wait_for_txn: 11, key: 'b' },
  ]
  await expect.poll(() => waits()).toEqual(expect.arrayContaining(all))
  expect(await waits({ limit: 2 })).toHaveLength(2)
  expect((await call('one-app', 'get_lock_wait_info', {})).statusCode).toBe(403)
  expect((await call('a-reader', 'get_lock_wait_info', { limit: 10_001 })).statusCode).toBe(400)
  for (const [startTs, key] of [
    [10, 'a'],
    [11, 'b'],
    [20, 'a'],
    [20, 'b'],
  ] as const)
    await call('a-writer', 'pessimistic_rollback', { keys: [key], start_ts: startTs, for_update_ts: startTs })
  await call('a-writer', 'pessimistic_rollback', { keys: ['b', 'a'], start_ts: 20, for_update_ts: 20 })
  await Promise.all(waiting)
  expect(await waits()).toEqual([])
})
