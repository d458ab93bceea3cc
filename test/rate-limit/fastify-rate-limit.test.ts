import rateLimit, { type RateLimitPluginOptions } from '@fastify/rate-limit'
import Fastify, { type FastifyInstance } from 'fastify'
import { afterEach, describe, expect, test } from 'vitest'
import { type Db, physicalMs } from '../../src/client/index.js'
import { fastifyRateLimitStore } from '../../src/rate-limit/index.js'
import { BACKENDS, testDbs } from '../client/backends.js'

describe.each(BACKENDS.slice(0, 2))('@fastify/rate-limit, $backend', ({ openDb }) => {
  const open = testDbs(openDb)
  const apps: FastifyInstance[] = []
  afterEach(async () => {
    for (const app of apps.splice(0)) await app.close()
  })

  async function site(db: Db, options: RateLimitPluginOptions): Promise<FastifyInstance> {
    const app = Fastify()
    apps.push(app)
    await app.register(rateLimit, { store: fastifyRateLimitStore(db), ...options })
    app.get('/', async () => 'in')
    app.get('/own', { config: { rateLimit: { max: 1, timeWindow: 60_000 } } }, async () => 'in')
    return app
  }
  const statusOf = async (app: FastifyInstance, url = '/'): Promise<number> => (await app.inject(url)).statusCode

  test('of many hits at the same time on two servers as many pass as may', async () => {
    const { db, another } = await open()
    const options = { max: 7, timeWindow: 60_000 }
    const two = await Promise.all([site(db, options), site(await another(), options)])
    await Promise.all(two.map((app) => app.inject('/own'))) // Their connections stand.
    const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => two[i % 2]?.inject('/')))
    const refused = answers.filter((answer) => answer?.statusCode !== 200)
    expect(refused.map((answer) => answer?.json().message)).toEqual(
      refused.map(() => 'Rate limit exceeded, retry in 1 minute'),
    )
    expect(refused).toHaveLength(13)
    expect(await db.get('rate-limit/127.0.0.1')).toBe('20')
  })

  test('a window begins with the first hit, and its end stays', async () => {
    const { db } = await open()
    const app = await site(db, { max: 1, timeWindow: 60_000 })
    await app.inject('/')
    const first = await db.getVersion('rate-limit/127.0.0.1')
    const refused = await app.inject('/')
    expect([refused.statusCode, Number(refused.headers['retry-after']) <= 60]).toEqual([429, true])
    const second = await db.getVersion('rate-limit/127.0.0.1')
    expect(second).toMatchObject({ value: '2', expireTs: first?.expireTs })
  })

  test('a window ends by itself', async () => {
    const { db } = await open()
    const app = await site(db, { max: 1, timeWindow: 100 })
    for (let window = 0; window < 2; window++) await expect.poll(() => statusOf(app)).toBe(200)
  })

  test('a look at a window does not count', async () => {
    const { db } = await open()
    const app = await site(db, { max: 2, timeWindow: 60_000 })
    const look = app.createRateLimit({ max: 2, timeWindow: 60_000 })
    app.get('/look', { config: { rateLimit: false } }, (request) => look(request, { increment: false }))
    await app.inject('/look')
    expect((await app.inject('/look')).json()).toMatchObject({ remaining: 2, ttl: 0 })
  })

  test('a ban, and a route with a limit of its own', async () => {
    const { db } = await open()
    const app = await site(db, { max: 2, ban: 1, timeWindow: 60_000 })
    const codes = []
    for (let i = 0; i < 5; i++) codes.push(await statusOf(app))
    expect(codes).toEqual([200, 200, 429, 403, 403])
    expect([await statusOf(app, '/own'), await statusOf(app, '/own')]).toEqual([200, 429])
  })

  test.each([
    { option: 'continueExceeding', wanted: [60_000, 60_000, 60_000] },
    { option: 'exponentialBackoff', wanted: [60_000, 120_000, 240_000] },
  ])('$option begins a window anew with each hit above the limit', async ({ option, wanted }) => {
    const { db } = await open()
    const app = await site(db, { max: 1, timeWindow: 60_000, [option]: true })
    expect(await statusOf(app)).toBe(200)
    for (const ms of wanted) {
      expect(await statusOf(app)).toBe(429)
      const { expireTs = 0, commitTs = 0 } = (await db.getVersion('rate-limit/127.0.0.1')) ?? {}
      const lifeMs = physicalMs(expireTs) - physicalMs(commitTs)
      expect(lifeMs).toBeLessThanOrEqual(ms)
      expect(lifeMs).toBeGreaterThan(ms - 30_000) // It counts from the start of the transaction.
    }
  })

  test('an error of PerKV fails the request, unless errors are skipped', async () => {
    const { db } = await open()
    await db.put('rate-limit/127.0.0.1', 'no number')
    expect(await statusOf(await site(db, { max: 1 }))).toBe(500)
    expect(await statusOf(await site(db, { max: 1, skipOnError: true }))).toBe(200)
    expect(() => fastifyRateLimitStore(db, { prefix: '' })).toThrow(TypeError)
  })
})
