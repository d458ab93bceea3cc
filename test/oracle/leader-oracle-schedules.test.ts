import { expect, test } from 'vitest'
import { runSchedule, runWrongClock, Servers } from './simulated-servers.js'
import { unsteadiness, violations } from './timestamp-history.js'

const SCHEDULES = Number(process.env['PERKV_TEST_RUNS'] ?? 100)

test('no timestamp is handed out twice or out of order, whatever happens to clocks, processes and the table', {
  tags: ['long'],
}, async () => {
  let handedOut = 0
  let refused = 0
  let epochs = 0
  for (let seed = 1; seed <= SCHEDULES; seed++) {
    const servers = new Servers(seed)
    await runSchedule(servers, 6000)
    expect({ seed, violations: violations(servers.history) }).toEqual({ seed, violations: [] })
    expect({ seed, tooFarAhead: servers.tooFarAhead }).toEqual({ seed, tooFarAhead: [] })
    expect({ seed, open: servers.openCount }).toEqual({ seed, open: 0 })

    const before = servers.history.length
    for (const server of servers.all) servers.next(server, 1)
    await servers.world.runUntil(servers.world.nowMs + 500)
    expect({ seed, answered: servers.history.length - before }).toEqual({ seed, answered: 3 })
    const roles = servers.all.map(({ run }) => run.oracle.role)
    expect(roles.map(({ role }) => role).sort()).toEqual(['follower', 'follower', 'leader'])
    expect(new Set(roles.map(({ leader }) => leader)).size).toBe(1)
    handedOut += before
    refused += servers.refused
    epochs += roles[0]?.epoch ?? 0
  }
  if (process.env['PERKV_TEST_REPORT']) console.log({ handedOut, refused, epochs })
  expect(handedOut).toBeGreaterThan(20 * SCHEDULES)
  expect(epochs).toBeGreaterThan(2 * SCHEDULES)
})

const HOUR_MS = 3_600_000

test.each([HOUR_MS, -HOUR_MS, 60_000, -20_000])(
  'a clock that is wrong by %d ms stops nobody for long, and makes nothing older',
  {
    tags: ['long'],
  },
  async (offsetMs) => {
    for (let seed = 1; seed <= SCHEDULES / 10; seed++) {
      const servers = new Servers(seed)
      await runWrongClock(servers, offsetMs, 120_000)
      expect({ seed, violations: violations(servers.history) }).toEqual({ seed, violations: [] })
      const { fastMs, slowMs, silentMs } = unsteadiness(servers.times)
      if (process.env['PERKV_TEST_REPORT']) console.log({ seed, offsetMs, fastMs, slowMs, silentMs })
      expect({ seed, isSteady: fastMs < 5000 && slowMs < 12_000, fastMs, slowMs }).toMatchObject({
        seed,
        isSteady: true,
      })
      expect({ seed, isServed: silentMs < 20_000, silentMs }).toMatchObject({ seed, isServed: true })
    }
  },
)
