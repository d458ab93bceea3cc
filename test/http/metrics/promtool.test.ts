import { spawn, spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { testServers } from '../support.js'
import { scrapeOf } from './scrape.js'

const start = testServers()
const MONITORING = fileURLToPath(new URL('../../../docs/monitoring/', import.meta.url))
const isAbsent = spawnSync('promtool', ['--version']).error !== undefined
if (isAbsent) console.warn('SKIPPED: docs/monitoring is not checked, because there is no promtool (Debian: prometheus)')

/** @returns its status, and everything that it writes. */
function promtool(args: readonly string[], input = ''): Promise<{ status: number | null; output: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn('promtool', args, { cwd: MONITORING })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk))
    child.on('error', reject).on('close', (status) => resolve({ status, output }))
    child.stdin.end(input)
  })
}

test.skipIf(isAbsent).each([
  ['check', 'config', 'prometheus.yml'],
  ['check', 'rules', 'alerts.yml'],
  ['test', 'rules', 'alerts.test.yml'],
])('promtool %s %s %s', async (...args) => {
  const { status, output } = await promtool(args)
  expect(status, output).toBe(0)
})

test.skipIf(isAbsent)('promtool check metrics finds nothing in a real scrape', async () => {
  const { text } = await scrapeOf(await start())
  const { output } = await promtool(['check', 'metrics'], text)
  expect(output).toBe('')
  expect((await promtool(['check', 'metrics'], `${text}perkv_lost{ 1\n`)).status).not.toBe(0)
})
