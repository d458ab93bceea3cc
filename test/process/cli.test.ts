import { createServer } from 'node:net'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { readConfig } from '../../src/server/config.js'
import { UsageError } from '../../src/server/flags.js'
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
    expect(help.stdout).toContain('perkv COMMAND --help')
    const version = await runCli(['--version'])
    expect(version.code).toBe(0)
    expect(version.stdout).toMatch(/^\d+\.\d+\.\d+\n$/)
  })

  const badUse: [string[], Record<string, string>, RegExp][] = [
    [['server'], {}, /unknown command "server"/],
    [['sevre'], {}, /unknown command "sevre": did you mean serve\? /],
    [['x'.repeat(30_000)], {}, /unknown command "x{100}…" /],
    [['serve', '--prot', '1'], {}, /Unknown option '--prot': did you mean --port\? \(see perkv serve --help\)$/m],
    [['serve'], { PERKV_PORT: 'x' }, /PERKV_PORT must be an integer/],
  ]
  test.each(badUse)('%j with %j is used wrongly', async (args, env, text) => {
    expectRefused(await runCli(args, env), 2, text)
  })

  test.each([
    [['--nope'], /--nope/],
    [['--tokens', 'f'], /--tokens/],
    [['--durability', 'snyc'], /not "snyc": did you mean sync\?$/],
    [['--port', '65536'], /--port must be an integer/],
    [['--port', ''], /--port must be an integer/],
    [['--port'], /--port/],
    [['extra'], /extra/],
    [['--durability', 'maybe'], /--durability must be one of sync, 1s, async/],
    [['--compression', 'zip'], /--compression must be one of snappy, none/],
    [['--block-cache-bytes', String(2 ** 32)], /--block-cache-bytes must be a size such as .* to 4294967295, not/],
    [['--log-level', 'loud'], /--log-level must be one of/],
    [['--store', 'files'], /--store must be leveldb, or an address/],
    [['--data', ''], /--data is empty/],
  ])('the flags %j of serve are used wrongly', (flags, text) => {
    const read = () => readConfig(flags, {})
    expect(read).toThrow(UsageError)
    expect(read).toThrow(text)
    expect(read).toThrow(/^[^\n]*$/)
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
        expectRefused(await runCli(['serve', '--port', '0', '--data', `${data}2`]), 1, /cannot be made: EROFS/)
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
