import { beforeEach, expect, test } from 'vitest'
import type { Connection } from '../../../src/client/index.js'
import { widthOf } from '../../../src/commands/client/shown.js'
import { connectTo } from '../../coordinator/support.js'
import { type Json, type TestServer, testServers } from '../../http/support.js'
import { linesOf, runCommand } from './run-command.js'

const start = testServers()
let server: TestServer
let db: Connection

beforeEach(async () => {
  server = await start()
  db = await connectTo(server)
  return () => db.close()
})

test('in a pipe, a line of JSON per second', { tags: ['long'] }, async () => {
  const running = linesOf(db, ['top', '--count', '2'])
  await db.put('k', 'v')
  const lines = (await running) as Json[]
  expect(lines).toHaveLength(2)
  expect(lines[0]).toMatchObject({
    time: expect.stringMatching(/^20.*Z$/),
    requests: { answered: expect.any(Number), problems: 0 },
    work: { locks: 0 },
    lag: { feed: 0, observers: 0, consumers: 0 },
    memory: { resident: expect.any(Number) },
  })
})

test.each([40, 80, 200])(
  'on a terminal of %i columns, a screen that fits, without what keys have for a terminal',
  {
    tags: ['long'],
  },
  async (columns) => {
    const { startTs } = await db.begin()
    await server.post('/v1/percolator/prewrite', {
      mutations: [{ op: 'put', key: 'in\u001b[2J the way', value: 'v' }],
      primary: 'in\u001b[2J the way',
      start_ts: startTs,
      lock_ttl: 600_000,
    })
    const stop = new AbortController()
    const onOutput = (output: string) => {
      if (output.split('\x1b[H').length > 3) stop.abort()
    }
    const { output } = await runCommand(db, ['top'], { isTerminal: true, columns, signal: stop.signal, onOutput })
    const [begin, ...screens] = output.toString().split('\x1b[H')
    expect(begin).toBe('\x1b[?1049h\x1b[?25l')
    const last = screens.at(-1) ?? ''
    expect(last.endsWith('\x1b[J\x1b[?25h\x1b[?1049l')).toBe(true)
    const lines = last.slice(0, last.indexOf('\x1b[J')).split('\x1b[K\n')
    expect(lines.length).toBeLessThanOrEqual(24)
    for (const line of lines) {
      expect(line).not.toContain('\x1b')
      expect(widthOf(line.trimEnd())).toBeLessThanOrEqual(columns)
    }
    expect(last).toMatch(/^PerKV \d/)
    expect(last).toMatch(/^Requests +answered +[\d.]+ \/s/m)
  },
)
