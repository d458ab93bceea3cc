import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { ClassicLevel } from 'classic-level'
import { afterAll, describe, expect, test } from 'vitest'
import { packRecord } from '../../src/percolator/codec/record.js'
import { killAll, runCli, startProcess, withTempDir } from './server-process.js'
import { noSmallDisk, withSmallDisk } from './small-disk.js'

afterAll(killAll)

/** One line on stderr, nothing on stdout, no stack. */
function expectRefused(finished: { code: number | null; stdout: string; stderr: string }, code: number, text: RegExp) {
  expect(finished.stderr).toMatch(text)
  expect(finished.stderr.trimEnd().split('\n')).toHaveLength(1)
  expect(finished.stdout).toBe('')
  expect(finished.code).toBe(code)
}

describe('perkv', () => {
  test('--help and --version', async () => {
    const help = await runCli(['--help'])
    expect(help.code).toBe(0)
    expect(help.stdout).toContain('--durability sync|async')
    const version = await runCli(['--version'])
    expect(version.code).toBe(0)
    expect(version.stdout).toMatch(/^\d+\.\d+\.\d+\n$/)
  })

  const badUse: [string[], Record<string, string>, RegExp][] = [
    [[], {}, /command is missing/],
    [['server'], {}, /unknown command "server"/],
    [['serve', '--nope'], {}, /--nope/],
    [['serve', '--port', '65536'], {}, /--port must be an integer/],
    [['serve', '--port', ''], {}, /--port must be an integer/],
    [['serve', '--port'], {}, /--port/],
    [['serve', 'extra'], {}, /extra/],
    [['serve', '--durability', 'maybe'], {}, /--durability must be one of sync, async/],
    [['serve', '--log-level', 'loud'], {}, /--log-level must be one of/],
    [['serve', '--store', 'files'], {}, /--store must be one of leveldb/],
    [['serve', '--data', ''], {}, /--data is empty/],
    [['serve'], { PERKV_PORT: 'x' }, /PERKV_PORT must be an integer/],
  ]
  test.each(badUse)('%j with %j is used wrongly', async (args, env, text) => {
    expectRefused(await runCli(args, env), 2, text)
  })

  test('the ready line names the address, the directory and a curl that works', () =>
    withTempDir(async (data) => {
      const server = await startProcess(data)
      expect(server.readyLine).toContain(data)
      const [, method, url, body] = /curl -X (\S+) (\S+) -d (\S+)/.exec(server.readyLine) ?? []
      const answer = await fetch(url ?? '', { method: method ?? '', body: body ?? '' })
      expect(answer.status).toBe(200)
      expect(await server.stop('SIGTERM')).toEqual({ code: 0, signal: null })
    }))

  test('a flag wins over the environment', () =>
    withTempDir(async (data) => {
      const taken = createServer()
      await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve))
      const { port } = taken.address() as { port: number }
      try {
        const args = ['serve', '--data', data, '--port', String(port)]
        expectRefused(await runCli(args, { PERKV_PORT: '0' }), 1, new RegExp(`port ${port} on 127.0.0.1 is in use`))
      } finally {
        taken.close()
      }
    }))

  test('a data directory in use, of a newer format, of another program, or that is a file', () =>
    withTempDir(async (directory) => {
      const data = join(directory, 'db')
      const server = await startProcess(data)
      expectRefused(await runCli(['serve', '--port', '0', '--data', data]), 1, /in use by another process/)
      await server.stop('SIGTERM')

      const db = new ClassicLevel<string, Buffer>(data, { valueEncoding: 'buffer' })
      await db.put('mformat', packRecord([99]))
      await db.close()
      expectRefused(await runCli(['serve', '--port', '0', '--data', data]), 1, /format 99.*newer PerKV/)

      const other = join(directory, 'other')
      const foreign = new ClassicLevel(other)
      await foreign.put('key', 'value')
      await foreign.close()
      expectRefused(await runCli(['serve', '--port', '0', '--data', other]), 1, /not PerKV's/)

      expectRefused(await runCli(['serve', '--port', '0', '--data', '/dev/null/db']), 1, /cannot be opened/)
      const file = join(directory, 'file')
      await writeFile(file, '')
      expectRefused(await runCli(['serve', '--port', '0', '--data', file]), 1, /cannot be opened: EEXIST/)
    }))

  test('a data directory without the rights to it', () =>
    withTempDir(async (directory) => {
      const data = join(directory, 'db')
      await mkdir(data)
      await chmod(data, 0)
      await chmod(directory, 0o755)
      const nobody = process.getuid?.() === 0 ? 65_534 : undefined // Nothing is denied to root.
      expectRefused(await runCli(['serve', '--port', '0', '--data', data], {}, nobody), 1, /Permission denied|EACCES/)
    }))

  test.skipIf(noSmallDisk !== undefined)(
    `a read-only file system${noSmallDisk ? ` (skipped: ${noSmallDisk})` : ''}`,
    () =>
      withSmallDisk(64, async (disk) => {
        const data = join(disk.path, 'db')
        const server = await startProcess(data)
        expect((await fetch(`${server.url}/v1/kv/key`, { method: 'PUT', body: 'value' })).status).toBe(200)
        await server.stop('SIGKILL')
        disk.remount('ro')
        expectRefused(
          await runCli(['serve', '--port', '0', '--data', data]),
          1,
          /cannot be opened: .*Read-only file system/,
        )
        expectRefused(await runCli(['serve', '--port', '0', '--data', `${data}2`]), 1, /cannot be opened/)
        disk.remount('rw')
        const again = await startProcess(data)
        expect(await (await fetch(`${again.url}/v1/kv/key`)).text()).toBe('value')
        await again.stop('SIGTERM')
      }),
  )

  test.each(['SIGTERM', 'SIGINT'] as const)('%s finishes what is in flight', (signal) =>
    withTempDir(async (data) => {
      const server = await startProcess(data)
      const put = (i: number) => fetch(`${server.url}/v1/kv/key${i}`, { method: 'PUT', body: 'v' })
      await put(0)
      const inFlight = Array.from({ length: 50 }, (_, i) =>
        put(i + 1).then(
          (answer) => answer.status,
          () => 'refused',
        ),
      )
      await inFlight[0]
      expect(await server.stop(signal)).toEqual({ code: 0, signal: null })
      const statuses = await Promise.all(inFlight)

      const again = await startProcess(data)
      for (const [i, status] of statuses.entries()) {
        const answer = await fetch(`${again.url}/v1/kv/key${i + 1}`)
        if (status === 200) expect(answer.status).toBe(200)
      }
      await again.stop('SIGTERM')
    }),
  )
})
