import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { platform } from 'node:os'
import { createInterface } from 'node:readline'
import { expect, test } from 'vitest'
import { familyCpuSeconds } from '../../bench/harness/process.mjs'
import { tellBeside, tellServers } from '../../bench/scenarios/postgres/tell.mjs'

const settings = { connections: 64, rounds: 3, seconds: 2, keys: 10_000, counts: [1, 2] }
/** Rounds of a contender with these rates: 1000 operations each. */
const runs = (...rates: number[]) =>
  rates.map((rate) => ({
    ...{ rate, count: 1000, failed: 1, p50: 2, p99: 5, generator: 0.1 },
    ...{ servers: 0.4, postgres: 0.2, statements: 370, wal: 250_000 },
  }))

test('the rate beside the bare one is the median of the ratios of rounds, with the gate that it has', () => {
  const results = {
    put: { perkv: runs(100, 300, 400), bare: runs(1000, 500, 800) },
    put_new: { perkv: runs(10, 10, 10), bare: runs(40, 40, 40) },
  }
  const machine = { cpu: 'a processor', cores: 2, memory_gib: 8, system: 'linux', load_before: 0.1, fsync_ms: 1 }
  const result = { date: '2026-11-28T00:00:00Z', node: 'v24.0.0', machine, settings, results }
  const [measured, told, rates, costs] = tellBeside(result) as [string, string, object[], object[]]
  expect([measured, told]).toEqual([
    expect.stringContaining('with 2 cores'),
    expect.stringContaining('3 rounds of 2 s'),
  ])
  expect(rates).toMatchObject([
    { 'per second': '300 / 800', ratio: '0.5 (0.1–0.6)', goal: '≥ 0.5', reached: 'yes' },
    { 'per second': '10 / 40', ratio: '0.25 (0.25–0.25)', goal: '', reached: '' },
  ])
  expect(costs).toMatchObject([
    { server: '0.4', PostgreSQL: '0.2', generator: '0.1', 'statements per operation': '0.37', 'bytes of WAL': '250' },
    { server: '', PostgreSQL: '0.2', generator: '0.1', 'statements per operation': 1, 'bytes of WAL': '250' },
    {},
    {},
  ])
})

test('more servers are told beside the fewest', () => {
  const results = { put: { 1: runs(100, 100, 100), 2: runs(150, 160, 170) } }
  expect(tellServers({ settings, results })[1]).toMatchObject([
    { 'per second': '100', 'to one server': '1 (1–1)', failed: 3 },
    { 'per second': '160', 'to one server': '1.6 (1.5–1.7)', 'CPU of servers, s per 1,000': '0.4' },
  ])
})

test.skipIf(platform() !== 'linux')(
  "a family's processor time has that of children that live and of those that have ended",
  { tags: ['long'] },
  async () => {
    const burn = 'while (process.cpuUsage().user < 150_000);'
    const family = `
      const { spawn, spawnSync } = require('node:child_process')
      spawnSync(process.execPath, ['-e', ${JSON.stringify(burn)}])
      spawn(process.execPath, ['-e', ${JSON.stringify(`${burn} console.log('burnt'); process.stdin.resume()`)}], { stdio: 'inherit' })`
    const parent = spawn(process.execPath, ['-e', family], { stdio: ['pipe', 'pipe', 'inherit'] })
    const ended = once(parent, 'exit')
    await once(createInterface({ input: parent.stdout }), 'line')
    expect(familyCpuSeconds(parent.pid)).toBeGreaterThanOrEqual(0.29) // What has ended counts in ticks of 10 ms.
    parent.stdin.end()
    await ended
  },
)
