import { afterAll, expect, test } from 'vitest'
import { requireFree } from '../../src/server/listen-address.js'
import { printTableAddress } from '../../src/store/table/bigtable/table-address.js'
import { makeTable } from '../../src/store/table/bigtable/table-admin.js'
import { CLI, killAll, runCli, startProcess } from '../process/server-process.js'
import { ownAddress } from './own-table.js'

afterAll(killAll)

const env = { BIGTABLE_EMULATOR_HOST: process.env['BIGTABLE_EMULATOR_HOST'] as string }

async function put(url: string): Promise<number> {
  return (await fetch(`${url}/v1/kv/key`, { method: 'PUT', body: 'value' })).status
}

async function roleOf(url: string): Promise<string> {
  const { oracle } = (await (await fetch(`${url}/v1/status`)).json()) as { oracle: { role: string } }
  return oracle.role
}

test('a leader with a wrong URL is replaced, and a server with the URL of a living one ends', async () => {
  const address = ownAddress()
  await makeTable(address)
  const store = ['--store', printTableAddress(address), '--log-level', 'fatal']
  const nobody = await requireFree('127.0.0.1', 0)
  const wrong = await startProcess('-', [...store, '--advertise', `http://127.0.0.1:${nobody}`], CLI, env)
  expect(await roleOf(wrong.url)).toBe('leader')
  const right = await startProcess('-', store, CLI, env)
  await expect.poll(() => put(right.url)).toBe(200)
  expect([await roleOf(right.url), await put(wrong.url)]).toEqual(['leader', 200])

  const port = await requireFree('127.0.0.1', 0)
  const twin = await runCli(['serve', '--port', String(port), ...store, '--advertise', right.url], env)
  expect(twin.code).toBe(1)
  expect(twin.stderr.trimEnd().split('\n')).toEqual([expect.stringContaining(`is reached at ${right.url} too`)])
  await expect.poll(() => put(right.url)).toBe(200)
  await expect.poll(() => put(wrong.url)).toBe(200)
})
