import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import fastifyCookie from '@fastify/cookie'
import fastifySession from '@fastify/session'
import session from 'express-session'
import Fastify from 'fastify'
import { afterEach, describe, expect, test } from 'vitest'
import { type Db, physicalMs } from '../../src/client/index.js'
import { expressSessionStore, type SessionStore, sessionStore } from '../../src/session/index.js'
import { BACKENDS, testDbs } from '../client/backends.js'
import { collect } from '../coordinator/support.js'

/** A site on either package: /login, /who, /count, /logout. */
interface Site {
  readonly store: SessionStore
  /** @returns the cookie too, if one was set. */
  ask(path: string, cookie?: string): Promise<{ status: number; text: string; cookie: string }>
  close(): Promise<void>
}

interface Data {
  user?: string
  count?: number
}

const SECRET = 'a secret of at least thirty-two characters'

/** What the pages do with the data of a session. */
function pageOf(path: string, data: Data): string {
  if (path === '/login') data.user = 'ann'
  if (path === '/count') data.count = (data.count ?? 0) + 1
  return path === '/count' ? String(data.count) : (data.user ?? 'nobody')
}

async function expressSite(db: Db, maxAge: number | undefined): Promise<Site> {
  const store = expressSessionStore(session, db)
  const cookie = maxAge === undefined ? {} : { maxAge }
  const handle = session({ secret: SECRET, resave: false, saveUninitialized: false, store, cookie })
  const server: Server = createServer((request, response) => {
    handle(request as never, response as never, (error?: unknown) => {
      if (error) {
        response.statusCode = 500
        return response.end(error instanceof Error ? error.message : '')
      }
      const { session: data } = request as unknown as { session: Data & { destroy(done: () => void): void } }
      if (request.url === '/logout') return data.destroy(() => response.end('bye'))
      return response.end(pageOf(request.url ?? '', data))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    store,
    async ask(path, cookie = '') {
      const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers: { cookie } })
      const set = response.headers.get('set-cookie')?.split(';')[0] ?? ''
      return { status: response.status, text: await response.text(), cookie: set }
    },
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

async function fastifySite(db: Db, maxAge: number | undefined): Promise<Site> {
  const store = sessionStore(db)
  const app = Fastify()
  const cookie = { secure: false, ...(maxAge === undefined ? {} : { maxAge }) }
  await app.register(fastifyCookie)
  await app.register(fastifySession, { secret: SECRET, saveUninitialized: false, store, cookie })
  app.get('/logout', async (request) => {
    await request.session.destroy()
    return 'bye'
  })
  for (const path of ['/login', '/who', '/count'])
    app.get(path, async (request) => pageOf(path, request.session as Data))
  return {
    store,
    async ask(url, cookie = '') {
      const response = await app.inject({ url, headers: { cookie } })
      const [set = ''] = [response.headers['set-cookie'] ?? ''].flat()
      return { status: response.statusCode, text: response.body, cookie: set.split(';')[0] ?? '' }
    },
    close: () => app.close(),
  }
}

const PACKAGES = [
  { name: 'express-session', siteOn: expressSite },
  { name: '@fastify/session', siteOn: fastifySite },
]
const CASES = PACKAGES.flatMap((of) => BACKENDS.slice(0, 2).map((backend) => ({ ...of, ...backend })))

/** As a promise. */
function called<T = undefined>(call: (callback: (error: unknown, value?: T) => void) => void): Promise<T | undefined> {
  return new Promise((resolve, reject) => call((error, value) => (error ? reject(error) : resolve(value))))
}

describe.each(CASES)('$name, $backend', ({ siteOn, openDb }) => {
  const open = testDbs(openDb)
  const sites: Site[] = []
  afterEach(async () => {
    for (const site of sites.splice(0)) await site.close()
  })
  async function site(db: Db, maxAge: number | undefined = 60_000): Promise<Site> {
    const one = await siteOn(db, maxAge)
    sites.push(one)
    return one
  }

  test('a login holds on another server, until it logs out on any', async () => {
    const { db, another } = await open()
    const [first, second] = await Promise.all([site(db), site(await another())])
    const { cookie } = await first.ask('/login')
    expect(cookie).not.toBe('')
    expect(await second.ask('/who', cookie)).toMatchObject({ status: 200, text: 'ann' })
    expect((await second.ask('/logout', cookie)).text).toBe('bye')
    expect((await first.ask('/who', cookie)).text).toBe('nobody')
    expect(await db.count({ prefix: 'session/' })).toBe(0)
  })

  test('a session ends when its cookie does', async () => {
    const { db } = await open()
    const one = await site(db)
    const before = Date.now()
    await one.ask('/login')
    const after = Date.now()
    const [{ expireAt } = {}] = await collect(db.scan({ prefix: 'session/' }))
    // Both round to a millisecond.
    expect(expireAt?.getTime()).toBeGreaterThanOrEqual(before + 59_999)
    expect(expireAt?.getTime()).toBeLessThanOrEqual(after + 60_001)
  })

  test('a session that is over is gone', async () => {
    const { db } = await open()
    const one = await site(db, 100)
    const { cookie } = await one.ask('/login')
    await expect.poll(() => db.count({ prefix: 'session/' })).toBe(0)
    expect((await one.ask('/who', cookie)).text).toBe('nobody')
  })

  test('a session whose cookie ends with the browser lives a day', async () => {
    const { db } = await open()
    const one = await siteOn(db, undefined)
    sites.push(one)
    await one.ask('/login')
    const [{ expireTs = 0, commitTs = 0 } = {}] = await collect(db.scan({ prefix: 'session/' }))
    const lifeMs = physicalMs(expireTs) - physicalMs(commitTs)
    expect(lifeMs).toBeLessThanOrEqual(86_400_000)
    expect(lifeMs).toBeGreaterThan(86_300_000)
  })

  test('requests put off the end of a session', async () => {
    const { db } = await open()
    const one = await site(db)
    const { cookie } = await one.ask('/login')
    const [first] = await collect(db.scan({ prefix: 'session/' }))
    await expect
      .poll(async () => {
        expect((await one.ask('/who', cookie)).text).toBe('ann')
        const [later] = await collect(db.scan({ prefix: 'session/' }))
        return (later?.expireTs ?? 0) > (first?.expireTs ?? 0)
      })
      .toBe(true)
  })

  test('of saves at the same time each is whole', async () => {
    const { db, another } = await open()
    const [first, second] = await Promise.all([site(db), site(await another())])
    const { cookie } = await first.ask('/login')
    const counts = await Promise.all([first, second, first, second, first].map((on) => on.ask('/count', cookie)))
    for (const { status, text } of counts) expect([status, Number(text) >= 1]).toEqual([200, true])
    expect((await second.ask('/who', cookie)).text).toBe('ann')
    expect(await db.count({ prefix: 'session/' })).toBe(1)
  })

  test('all, length and clear', async () => {
    const { db } = await open()
    await db.put('other', 'v')
    const one = await site(db)
    for (let i = 0; i < 3; i++) await one.ask('/login')
    const all = await called<Record<string, object>>((done) => one.store.all(done))
    expect(Object.values(all ?? {})).toMatchObject([{ user: 'ann' }, { user: 'ann' }, { user: 'ann' }])
    expect(await called<number>((done) => one.store.length(done))).toBe(3)
    await called((done) => one.store.clear(done))
    expect(await called<number>((done) => one.store.length(done))).toBe(0)
    expect(await db.get('other')).toBe('v')
  })

  test('an error of PerKV fails the request', async () => {
    const { db } = await open()
    const one = await site(db)
    const { cookie } = await one.ask('/login')
    const [{ key = '' } = {}] = await collect(db.scan({ prefix: 'session/' }))
    await db.put(key, 'no JSON')
    expect((await one.ask('/who', cookie)).status).toBe(500)
  })
})

describe('a store', () => {
  const open = testDbs(BACKENDS[2].openDb)

  test('touch moves the end, and nothing else; a session that is gone stays so', async () => {
    const { db } = await open()
    const store = sessionStore(db, { prefix: 's/' })
    const at = (ms: number) => ({ cookie: { expires: new Date(Date.now() + ms) }, data: ms })
    await called((done) => store.set('a', at(10_000), done))
    const before = await db.getVersion('s/a')
    await called((done) => store.touch('a', at(90_000), done))
    const after = await db.getVersion('s/a')
    expect(after?.value).toBe(before?.value)
    expect((after?.expireTs ?? 0) - (before?.expireTs ?? 0)).toBeGreaterThan(70_000 * 2 ** 11)
    expect(await called<object | null>((done) => store.get('a', done))).toEqual({
      cookie: { expires: after?.expireAt },
      data: 10_000,
    })
    await called((done) => store.destroy('a', done))
    await called((done) => store.touch('a', at(90_000), done))
    expect(await called<object | null>((done) => store.get('a', done))).toBeNull()
  })

  test.each([
    { cookie: { expires: new Date(Date.now() - 5000) } },
    { cookie: { maxAge: 0 } },
    { cookie: { originalMaxAge: 0.5 } },
  ])('a session that is over goes at once: %j', async (over) => {
    const { db } = await open()
    const store = sessionStore(db)
    await called((done) => store.set('a', over, done))
    await expect.poll(() => called<object | null>((done) => store.get('a', done))).toBeNull()
  })

  test('its options, and errors without anybody who hears them', async () => {
    const { db } = await open()
    expect(() => sessionStore(db, { prefix: '' })).toThrow(TypeError)
    expect(() => sessionStore(db, { ttl: '5 apples' as '5d' })).toThrow(TypeError)
    sessionStore(db).set('x'.repeat(5000), {})
    await expect(called((done) => sessionStore(db).set('x'.repeat(5000), {}, done))).rejects.toMatchObject({
      code: 'payload_too_large',
    })
  })
})
