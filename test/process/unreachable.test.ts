import { once } from 'node:events'
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { load } from '../../src/commands/load.js'
import { killAll, runCli, startProcess, withTempDir } from './server-process.js'

afterAll(killAll)

const LINES = Array.from({ length: 5000 }, (_, i) => `{"key":"k${i}","value":"v"}\n`)

/** Every command that talks to a server, with files that exist. */
const COMMANDS: Readonly<Record<string, (directory: string) => readonly string[]>> = {
  dump: () => ['dump'],
  load: (directory) => ['load', join(directory, 'lines')],
  backup: (directory) => ['backup', join(directory, 'new.backup')],
  restore: (directory) => ['restore', join(directory, 'a.backup')],
}

/** In one line, and long before anything would be given up that has begun. */
async function expectUnreachable(command: readonly string[], url: string, reason: string): Promise<void> {
  const started = performance.now()
  const finished = await runCli([...command, '--server', url])
  expect(finished).toEqual({ code: 1, stdout: '', stderr: `perkv: ${url}: ${reason}\n` })
  expect(performance.now() - started).toBeLessThan(15_000)
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  return port
}

describe('a server that is not there', () => {
  let directory: string
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'perkv-'))
    const server = await startProcess(join(directory, 'data'))
    await writeFile(join(directory, 'lines'), LINES.join(''))
    const backup = await runCli(['backup', '--quiet', '--server', server.url, join(directory, 'a.backup')])
    expect(backup).toEqual({ code: 0, stdout: '', stderr: '' })
    await server.stop('SIGTERM')
    return () => rm(directory, { recursive: true, force: true })
  })

  // Each waits for seconds.
  test.concurrent.each(Object.keys(COMMANDS))(
    'perkv %s: nobody listens, or nobody answers, or the name is unknown',
    async (name) => {
      const command = COMMANDS[name]?.(directory) ?? []
      const port = await freePort()
      await expectUnreachable(command, `http://127.0.0.1:${port}`, `connect ECONNREFUSED 127.0.0.1:${port}`)
      const host = 'no-such-host.invalid'
      await expectUnreachable(command, `http://${host}:7400`, `getaddrinfo ENOTFOUND ${host}`)
      const silent = createServer(() => {}).listen(0, '127.0.0.1')
      await once(silent, 'listening')
      await expectUnreachable(command, `http://127.0.0.1:${(silent.address() as AddressInfo).port}`, 'no answer')
      silent.close()
    },
  )
})

test('a dump whose server dies in the middle of the answer fails in one line, and leaves the part', () =>
  withTempDir(async (directory) => {
    const server = createHttpServer((request, response) => {
      if (request.url?.startsWith('/v1/kv') !== true) return response.writeHead(404).end('{"code":"not_found"}')
      response.writeHead(200, { 'content-type': 'application/x-ndjson' })
      response.write(LINES.join(''), () => response.destroy())
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const finished = await runCli(['dump', '--server', url, join(directory, 'dumped')])
    server.close()
    const stderr = `perkv: ${url}: the connection broke in the middle of an answer\n`
    expect(finished).toEqual({ code: 1, stdout: '', stderr })
    expect((await readdir(directory)).filter((name) => name !== 'dumped.part')).toEqual([])
  }))

test.each([
  [200, '<html>\n</html>', '200 unexpected_answer: this is no PerKV server, or something stands before it'],
  [200, 'null', '200 unexpected_answer: this is no PerKV server, or something stands before it'],
  [400, '{"code":"a\\u001b[31m","detail":"b\\nc"}', String.raw`400 a\x1b[31m: b\nc`],
])('an answer that is not of PerKV, %i %s: one line, which the terminal does not obey', (status, body, said) =>
  withTempDir(async (directory) => {
    const server = createHttpServer((_request, response) => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(body)
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    for (const command of ['backup', 'dump']) {
      const finished = await runCli([command, '--server', url, join(directory, 'new')])
      expect(finished, command).toEqual({ code: 1, stdout: '', stderr: `perkv: the server answered ${said}\n` })
    }
    server.close()
  }),
)

test('the bar of a load shows what is stored, not what was read; a wait is said once', () =>
  withTempDir(async (directory) => {
    const file = join(directory, 'lines')
    await writeFile(file, LINES.join(''))
    const written: string[] = []
    const write = vi.spyOn(process.stderr, 'write').mockImplementation((text) => written.push(String(text)) > 0)
    const isTTY = Object.getOwnPropertyDescriptor(process.stderr, 'isTTY')
    Object.defineProperty(process.stderr, 'isTTY', { value: true, configurable: true })
    let isBack = false
    const server = createHttpServer((request, response) => {
      request.resume().on('end', () => {
        const isTaken = request.url === '/healthz' || isBack
        response.writeHead(isTaken ? 200 : 503, { 'content-type': 'application/json' })
        response.end(isTaken ? '{}' : '{"code":"overloaded","detail":"busy"}')
      })
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    try {
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
      const loading = load.run(['--server', url, file], {})
      await vi.waitUntil(() => written.some((text) => text.includes(' %')))
      expect(written.filter((text) => / [1-9]\d* %/.test(text))).toEqual([])
      isBack = true
      await loading
      const notes = written.filter((text) => text.endsWith('\n')).map((text) => text.replace(/^[^p]*perkv/, ''))
      expect(notes).toHaveLength(2)
      expect(notes[0]).toBe(' load: the server answered 503 overloaded: busy; trying again\n')
      expect(notes[1]).toMatch(/^ load: 5,000 lines, 0\.1 MB in /)
    } finally {
      write.mockRestore()
      if (isTTY !== undefined) Object.defineProperty(process.stderr, 'isTTY', isTTY)
      else Reflect.deleteProperty(process.stderr, 'isTTY')
      server.closeAllConnections()
      server.close()
    }
  }))
