import { expect, test } from 'vitest'
import { numberOf, testServers } from '../support.js'

const start = testServers()

function sampleOf(text: string, series: string): number {
  const line = text.split('\n').find((line) => line.startsWith(`${series} `))
  if (line === undefined) throw new Error(`${series} is not in the scrape`)
  return Number(line.slice(series.length + 1))
}

test('families with more samples than are written at a time have one head, and each sample once', {
  tags: ['long'],
}, async () => {
  const server = await start()
  for (let i = 0; i < 250; i++) await server.database.observers.put(`o${i}`, { range: { prefix: new Uint8Array() } })
  const { body } = await server.get('/metrics')
  const lines = body.split('\n').filter((line) => line !== '')
  const names = lines.map((line) => (line.startsWith('#') ? line.split(' ', 3).join(' ') : line.split(/ (?=\S+$)/)[0]))
  expect(new Set(names).size).toBe(lines.length)
  expect(lines.filter((line) => line.startsWith('perkv_observer_pending{'))).toHaveLength(250)
  expect(body.endsWith('\n')).toBe(true)
})

test('scrapes at the same time are one', async () => {
  const server = await start()
  const [one, other] = await Promise.all([server.get('/metrics'), server.get('/metrics')])
  expect(other?.body).toBe(one?.body)
})

test('the oracle counts timestamps, waits and steps of the clock', async () => {
  let ms = 1_700_000_000_000
  const server = await start({ now: () => ms, monotonicNow: () => 0 })
  const before = (await server.get('/metrics')).body
  numberOf(await server.ok('tso', { count: 1000 }), 'ts')
  ms += 60_000
  numberOf(await server.ok('tso', {}), 'ts')
  ms -= 30_000
  numberOf(await server.ok('tso', {}), 'ts')
  const after = (await server.get('/metrics')).body
  const grown = (series: string): number => sampleOf(after, series) - sampleOf(before, series)
  expect(grown('perkv_oracle_timestamps_total')).toBe(1002)
  expect(grown('perkv_clock_steps_total{direction="forward"}')).toBe(1)
  expect(grown('perkv_clock_steps_total{direction="back"}')).toBe(1)
  expect(sampleOf(after, 'perkv_clock_ahead_seconds')).toBe(30)
  expect(grown('perkv_oracle_wait_seconds_count{reason="mark"}')).toBeGreaterThan(0)
})

test('a collection is counted, and what it removes', async () => {
  const server = await start()
  for (const value of ['1', '2', '3']) await server.put('key', value)
  const { body: before } = await server.get('/metrics')
  expect((await server.post('/v1/admin/gc', { life_time_ms: 0 })).statusCode).toBe(200)
  const { body: after } = await server.get('/metrics')
  expect(sampleOf(after, 'perkv_collections_total') - sampleOf(before, 'perkv_collections_total')).toBe(1)
  expect(sampleOf(after, 'perkv_collection_removed_versions_total')).toBeGreaterThan(0)
  expect(sampleOf(after, 'perkv_collection_failures_total')).toBe(0)
})
