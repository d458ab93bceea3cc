import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { CLI, killAll, runCli, startProcess, withTempDir } from './server-process.js'
import { noSmallDisk, withSmallDisk } from './small-disk.js'

afterAll(killAll)

const run = (command: string, data: string, ...args: string[]) => runCli([command, '--data', data, ...args])

async function flipInTable(data: string): Promise<string> {
  const [file] = (await readdir(data)).filter((name) => name.endsWith('.ldb'))
  const path = join(data, file as string)
  const bytes = await readFile(path)
  bytes[50] = (bytes[50] as number) ^ 1
  await writeFile(path, bytes)
  return file as string
}

/** `npm run test:long`. repair.test.ts goes on with repairs that ended half-way, too. */
const IS_BEFORE_RELEASE = Boolean(process.env['PERKV_TEST_LONG'])

test('a database is checked, damaged, refused, repaired and served again', () =>
  withTempDir(async (directory) => {
    const data = join(directory, 'db')
    const server = await startProcess(data)
    for (const key of ['a', 'b']) await fetch(`${server.url}/v1/kv/${key}`, { method: 'PUT', body: 'x'.repeat(400) })
    const inUse = await run('check', data)
    expect([inUse.code, inUse.stderr]).toEqual([1, `perkv: the data directory ${data} is in use by another process\n`])
    expect((await run('repair', data)).stderr).toBe(inUse.stderr)
    await server.stop('SIGTERM')

    const sound = await run('check', data, '--json') // And its log becomes a table.
    expect(sound.code).toBe(0)
    expect(JSON.parse(sound.stdout)).toMatchObject({
      sound: true,
      problems: [],
      records: {
        keys: 2,
        problems: 0,
        families: { default: { records: 2 }, write: { records: 2 }, newest: { records: 2 } },
      },
    })
    const nothing = await run('repair', data)
    expect([nothing.code, nothing.stdout.endsWith('sound: nothing to repair\n')]).toEqual([0, true])
    expect(await readdir(directory)).toEqual(['db'])

    const file = await flipInTable(data)
    const fault = `${file}: the data block at offset 0 fails its checksum`
    const refused = await runCli(['serve', '--port', '0', '--data', data])
    expect([refused.code, refused.stderr.split('\n').length]).toEqual([1, 2])
    expect(refused.stderr).toContain(`is damaged: ${fault}; run perkv check and perkv repair, or restore a back-up`)
    const found = await run('check', data)
    expect([found.code, found.stdout.split('\n')[0]]).toEqual([1, `damaged_file: ${fault}`])

    const before = await readdir(data)
    const dry = await run('repair', data, '--dry-run')
    expect(dry.code).toBe(0)
    expect(dry.stdout).toMatch(/^lost: .*\.ldb: any versions of keys from the first to write records near "b"$/m)
    expect([await readdir(directory), await readdir(data)]).toEqual([['db'], before])
    const repaired = await run('repair', data)
    expect([repaired.code, repaired.stdout]).toEqual([
      0,
      expect.stringMatching(/\nsound: \d+ restored, \d+ removed, [1-9]\d* lost\n$/),
    ])
    const copy = (await readdir(directory)).find((name) => name.startsWith('db.before-repair-'))
    expect(await readdir(join(directory, copy as string))).toEqual(before)
    expect((await run('check', data)).code).toBe(0)
    expect((await run('check', join(directory, copy as string))).code).toBe(1)
    const again = await startProcess(data)
    expect((await fetch(`${again.url}/readyz`)).status).toBe(200)
    await again.stop('SIGTERM')
  }))

/** Many keys in tables of some MiB, the last one damaged. */
async function damagedDatabase(data: string): Promise<string[]> {
  const server = await startProcess(data)
  const keys = Array.from({ length: 3000 }, (_, i) => `key/${String(i).padStart(5, '0')}`)
  for (let from = 0; from < keys.length; from += 500) {
    const ops = keys.slice(from, from + 500).map((key) => ({ op: 'put', key, value: `value of ${key} `.repeat(9) }))
    const answer = await fetch(`${server.url}/v1/txn`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ ops }),
    })
    expect(answer.status).toBe(200)
  }
  await server.stop('SIGTERM')
  expect((await run('check', data)).code).toBe(0) // And its log becomes a table.
  const path = join(data, (await readdir(data)).find((name) => name.endsWith('.ldb')) as string)
  const bytes = await readFile(path)
  for (const part of [0.5, 0.7, 0.9]) bytes.writeUInt32LE(0x0bad, Math.floor(part * bytes.length))
  await writeFile(path, bytes)
  return keys
}

async function expectAll(data: string, keys: readonly string[]): Promise<void> {
  const server = await startProcess(data)
  for (let from = 0; from < keys.length; from += 1000) {
    const pages = await fetch(`${server.url}/v1/kv?start=${keys[from]}&limit=1000`)
    const { pairs } = (await pages.json()) as { pairs: { key: string; value: string }[] }
    expect(pairs.map(({ key, value }) => [key, value])).toEqual(
      keys.slice(from, from + 1000).map((key) => [key, `value of ${key} `.repeat(9)]),
    )
  }
  await server.stop('SIGTERM')
}

test.skipIf(!IS_BEFORE_RELEASE)('a repair that is killed at any moment is finished by the next one', () =>
  withTempDir(async (directory) => {
    const data = join(directory, 'db')
    const keys = await damagedDatabase(data)
    for (const afterMs of [0, 5, 30]) {
      const child = spawn(process.execPath, [CLI, 'repair', '--no-backup', '--data', data])
      const closed = once(child, 'close')
      child.stdout.once('data', () => setTimeout(() => child.kill('SIGKILL'), afterMs))
      await closed
    }
    const repaired = await run('repair', data)
    expect([repaired.code, repaired.stderr]).toEqual([0, ''])
    expect((await run('check', data)).code).toBe(0)
    await expectAll(data, keys)
  }),
)

test.skipIf(!IS_BEFORE_RELEASE || noSmallDisk)('a repair on a full disk says so, and goes on when there is room', () =>
  withSmallDisk(96, async (disk) => {
    const data = join(disk.path, 'db')
    const keys = await damagedDatabase(data)
    await disk.fill(100_000)
    const full = await run('repair', data, '--no-backup')
    expect([full.code, full.stderr]).toEqual([1, expect.stringMatching(/^perkv: there is no room to repair .*\n$/)])
    expect((await run('repair', data)).code).toBe(1)
    await disk.free()
    expect((await run('repair', data)).code).toBe(0)
    await expectAll(data, keys)
  }),
)

test('a directory without a database, and flags that are wrong', () =>
  withTempDir(async (data) => {
    for (const command of ['check', 'repair']) {
      expect((await run(command, data)).stderr).toBe(`perkv: there is no database in ${data}\n`)
      expect((await run(command, join(data, 'none'))).stderr).toMatch(
        /^perkv: the data directory .* cannot be read: ENOENT/,
      )
      expect((await run(command, data, '--nope')).code).toBe(2)
      expect((await runCli([command, '--help'])).stdout).toContain(`Usage: perkv ${command}`)
    }
    expect(await readdir(data)).toEqual([])
  }))
