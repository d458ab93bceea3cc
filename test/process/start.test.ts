import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { chmod, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { ClassicLevel } from 'classic-level'
import { afterAll, describe, expect, test } from 'vitest'
import { packRecord } from '../../src/percolator/codec/record.js'
import { readConfig } from '../../src/server/config.js'
import { UsageError } from '../../src/server/flags.js'
import { limitFlags } from '../../src/server/limit-flags.js'
import { UnusableAddress } from '../../src/server/listen-address.js'
import { createLog } from '../../src/server/log.js'
import { startServer } from '../../src/server/server.js'
import { UnusableFile } from '../../src/server/unusable-file.js'
import { DataDirectoryError } from '../../src/store/leveldb/data-directory-error.js'
import { version } from '../../src/version.js'
import { CLI, ENV, killAll, runCli, startProcess, withTempDir } from './server-process.js'
import { noSmallDisk, withSmallDisk } from './small-disk.js'

afterAll(killAll)

const HAS_OPENSSL = spawnSync('openssl', ['version']).status === 0
const PROJECT = dirname(dirname(CLI))
const isRoot = process.getuid?.() === 0

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

const isUp = async (url: string): Promise<boolean> => (await fetch(`${url}/livez`).catch(() => undefined))?.ok ?? false

async function until(isTrue: () => Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await new Promise((resolve) => setTimeout(resolve, 20))
}

/** Everything that is there, by path. */
async function everything(directory: string): Promise<string[]> {
  const names = await readdir(directory, { recursive: true })
  // LevelDB writes LOG into any directory that it looks at.
  return names.filter((name) => !/LOG(\.old)?$/.test(name)).sort()
}

interface WrongStart {
  readonly name: string
  readonly says: RegExp
  /** @returns the flags, of files that it makes in the directory. */
  readonly flags: (directory: string) => Promise<string[]> | string[]
  /** As the user that nothing belongs to. */
  readonly isNobody?: boolean
  /** In a process of its own: one of each kind of error, and what the command itself looks at. */
  readonly isProgram?: boolean
}

const inDir =
  (...path: string[]) =>
  (directory: string) => ['--data', join(directory, ...path)]
const withFile = (flag: string, name: string, content: string) => async (directory: string) => {
  await writeFile(join(directory, name), content, { mode: 0o600 })
  return ['--data', join(directory, 'db'), flag, join(directory, name)]
}

const WRONG: WrongStart[] = [
  {
    name: 'an unknown host',
    isProgram: true,
    flags: (at) => ['--data', join(at, 'db'), '--insecure', '--host', 'nosuch.invalid'],
    says: /the host nosuch\.invalid is unknown/,
  },
  {
    name: 'an address of another machine',
    flags: (at) => ['--data', join(at, 'db'), '--insecure', '--host', '192.0.2.1'],
    says: /this machine has no address 192\.0\.2\.1$/,
  },
  {
    name: 'a token file that is missing',
    isProgram: true,
    flags: (at) => ['--data', join(at, 'db'), '--token-file', join(at, 'none')],
    says: /none cannot be used: ENOENT/,
  },
  {
    name: 'a token file that is a directory',
    flags: (at) => ['--data', join(at, 'db'), '--token-file', at],
    says: /cannot be used: it is no file/,
  },
  {
    name: 'a token file that never ends',
    flags: (at) => ['--data', join(at, 'db'), '--token-file', '/dev/zero'],
    says: /\/dev\/zero cannot be used: it is no file/,
  },
  { name: 'a token file without tokens', flags: withFile('--token-file', 't', ''), says: /t cannot be used: / },
  { name: 'a bad line of tokens', flags: withFile('--token-file', 't', 'rw x\n'), says: /t cannot be used: line 1/ },
  {
    name: 'a certificate that is missing',
    flags: (at) => ['--data', join(at, 'db'), '--tls-cert-file', join(at, 'c'), '--tls-key-file', join(at, 'k')],
    says: /c cannot be used: ENOENT/,
  },
  {
    name: 'a certificate that is none',
    flags: async (at) => [
      ...(await withFile('--tls-cert-file', 'c', 'no')(at)),
      ...(await withFile('--tls-key-file', 'k', 'no')(at)).slice(2),
    ],
    says: /cannot be used: /,
  },
  {
    name: 'data in a file',
    flags: async (at) => {
      await writeFile(join(at, 'file'), '')
      return ['--data', join(at, 'file')]
    },
    says: /file cannot be made: .*(EEXIST|ENOTDIR)/,
  },
  {
    name: 'data below a file',
    flags: async (at) => {
      await writeFile(join(at, 'file'), '')
      return ['--data', join(at, 'file', 'deep', 'db')]
    },
    says: /db cannot be made: .*ENOTDIR/,
  },
  {
    name: 'data behind a link to nothing',
    flags: async (at) => {
      await symlink(join(at, 'nothing'), join(at, 'link'))
      return ['--data', join(at, 'link')]
    },
    says: /link cannot be made: /,
  },
  {
    name: 'data behind a link to itself',
    flags: async (at) => {
      await symlink(join(at, 'link'), join(at, 'link'))
      return ['--data', join(at, 'link', 'db')]
    },
    says: /db cannot be made: .*ELOOP/,
  },
  {
    name: 'data in a name that is too long',
    flags: inDir('a', 'b'.repeat(300)),
    says: /cannot be made: .*ENAMETOOLONG/,
  },
  { name: 'data in /proc', flags: () => ['--data', '/proc/x/y'], says: /\/proc\/x\/y cannot be made: .*ENOENT/ },
  {
    name: 'data where nothing may be made',
    isNobody: true,
    flags: async (at) => {
      await mkdir(join(at, 'closed'), { mode: 0o555 })
      return ['--data', join(at, 'closed', 'db')]
    },
    says: /db cannot be made: .*EACCES/,
  },
  {
    name: 'data that may not be read',
    isNobody: true,
    flags: async (at) => {
      await mkdir(join(at, 'db'), { mode: 0o700 })
      await chmod(join(at, 'db'), isRoot ? 0o700 : 0)
      return ['--data', join(at, 'db')]
    },
    says: /Permission denied|EACCES/,
  },
  {
    name: 'a LevelDB of another program',
    isProgram: true,
    flags: async (at) => {
      const db = new ClassicLevel(join(at, 'db'))
      await db.put('key', 'value')
      await db.close()
      return ['--data', join(at, 'db')]
    },
    says: /is a LevelDB, but not PerKV's$/,
  },
  {
    name: 'a directory of other files',
    flags: async (at) => {
      await mkdir(join(at, 'mine'))
      for (const name of ['notes.txt', 'lost+found', 'LOG', 'a.ts']) await writeFile(join(at, 'mine', name), 'x')
      return ['--data', join(at, 'mine')]
    },
    says: /mine holds no database, but "a\.ts" and 1 more: give a new or an empty directory$/,
  },
  {
    name: 'a pid file that cannot be written',
    isProgram: true,
    flags: (at) => ['--data', join(at, 'db'), '--pid-file', join(at, 'none', 'pid')],
    says: /pid cannot be used: ENOENT/,
  },
  {
    name: 'a newer format',
    flags: async (at) => {
      const db = new ClassicLevel<string, Buffer>(join(at, 'db'), { valueEncoding: 'buffer' })
      await db.put('mformat', packRecord([99]))
      await db.close()
      return ['--data', join(at, 'db')]
    },
    says: /has format 99, written by a newer PerKV/,
  },
  {
    name: 'damage',
    flags: async (at) => {
      const db = new ClassicLevel(join(at, 'db'))
      await db.put('key', 'value')
      await db.close()
      await rm(join(at, 'db', 'CURRENT'))
      return ['--data', join(at, 'db')]
    },
    says: /is damaged: CURRENT: it is missing/,
  },
]

/** The directory is as it was but for LevelDB's own tidying. */
async function expectNothingNew(directory: string, attempt: () => Promise<void>): Promise<void> {
  const before = await everything(directory)
  await attempt()
  const isNew = (name: string): boolean => !before.includes(name) && !/^db\//.test(name)
  expect((await everything(directory)).filter(isNew)).toEqual([])
}

/** One line, a code, soon, and nothing is left. */
const expectRefused = (directory: string, flags: string[], says: RegExp, uid?: number): Promise<void> =>
  expectNothingNew(directory, async () => {
    const finished = await runCli(['serve', '--port', '0', ...flags], {}, uid)
    expect(finished.stdout).toBe('')
    expect(finished.stderr).toMatch(/^perkv: [^\n]*\n$/)
    expect(finished.stderr.trimEnd()).toMatch(says)
    expect(finished.code).toBe(1)
  })

/** The server in this process fails with an error that the command tells in one line, as the test above shows of each kind. */
const expectFailure = (directory: string, flags: string[], says: RegExp): Promise<void> =>
  expectNothingNew(directory, async () => {
    const config = readConfig(['--port', '0', ...flags], {})
    const error: unknown = await startServer(config, version(), createLog('silent')).catch((error) => error)
    expect([UnusableFile, UnusableAddress, DataDirectoryError].some((kind) => error instanceof kind)).toBe(true)
    const { message } = error as Error
    expect(message).toMatch(/^[^\n]*$/)
    expect(`perkv: ${message}`).toMatch(says)
  })

describe('a start that is wrong is one line, soon, and leaves nothing behind', () => {
  test.each(WRONG)('$name', ({ flags, says, isNobody = false, isProgram = isNobody }) =>
    withTempDir(async (directory) => {
      await chmod(directory, 0o755)
      const given = await flags(directory)
      if (!isProgram) await expectFailure(directory, given, says)
      else await expectRefused(directory, given, says, isNobody && isRoot ? 65_534 : undefined)
    }),
  )

  test('a port that is in use', () =>
    withTempDir(async (directory) => {
      const taken = createServer().listen(0, '127.0.0.1')
      await once(taken, 'listening')
      const { port } = taken.address() as AddressInfo
      try {
        const flags = ['--port', String(port), '--data', join(directory, 'deep', 'db')]
        await expectRefused(directory, flags, new RegExp(`^perkv: port ${port} on 127.0.0.1 is in use$`))
      } finally {
        taken.close()
      }
    }))

  test('a directory in use, by its name and by a link, until LOCK is deleted: then the first server lets go', () =>
    withTempDir(async (directory) => {
      const data = join(directory, 'db')
      const server = await startProcess(data)
      await symlink(data, join(directory, 'link'))
      const put = (key: string) => fetch(`${server.url}/v1/kv/${key}`, { method: 'PUT', body: 'value' })
      expect((await put('before')).status).toBe(200)
      for (const path of [data, join(directory, 'link')])
        await expectRefused(directory, ['--data', path], /is in use by another process$/)
      await rm(join(data, 'LOCK'))
      expect((await put('after')).status).toBe(503)
      const ready = await fetch(`${server.url}/readyz`)
      expect([ready.status, await ready.text()]).toEqual([503, expect.stringContaining('LOCK is gone')])
      const again = await startProcess(data) // The first one has let go of it.
      expect(await (await fetch(`${again.url}/v1/kv/before`)).text()).toBe('value')
      await again.stop('SIGTERM')
      expect(await server.stop('SIGTERM')).toEqual({ code: 0, signal: null })
    }))

  test.skipIf(noSmallDisk !== undefined)(`a full disk${noSmallDisk ? ` (skipped: ${noSmallDisk})` : ''}`, () =>
    withSmallDisk(8, async (disk) => {
      for (const freeBytes of [0, 4096]) {
        await disk.fill(freeBytes)
        const before = await everything(disk.path)
        const { code, stderr, stdout } = await runCli(['serve', '--port', '0', '--data', join(disk.path, 'a', 'db')])
        expect([code, stdout]).toEqual([1, ''])
        expect(stderr).toMatch(/^perkv: [^\n]*No space left on device[^\n]*\n$/i)
        expect(await everything(disk.path)).toEqual(before)
        await disk.free()
      }
    }),
  )
})

describe('a start that is right', () => {
  test('in the root of a volume, and on an IPv6 address in brackets; its pid is in a file until it ends', () =>
    withTempDir(async (data) => {
      for (const name of ['lost+found', '.snapshot']) await mkdir(join(data, name))
      const file = join(data, 'perkv.pid')
      const server = await startProcess(data, ['--host', '[::1]', '--pid-file', file])
      expect(server.url).toMatch(/^http:\/\/\[::1\]:\d+$/)
      expect(await isUp(server.url)).toBe(true)
      expect(await readFile(file, 'utf8')).toBe(`${server.pid}\n`)
      await server.stop('SIGTERM')
      expect(await everything(data)).not.toContain('perkv.pid')
      const again = await startProcess(data, ['--host', '0:0:0:0:0:0:0:1', '--pid-file', file])
      await writeFile(file, '1\n') // Of another server, which is not this one's to remove.
      await again.stop('SIGTERM')
      expect(await readFile(file, 'utf8')).toBe('1\n')
    }))

  test.each(['http://localhost', 'localhost:7400', '[::1]:7400', '[localhost]', '[::1', 'a b', '/'])(
    'the host %s is used wrongly',
    (host) => {
      const read = () => readConfig(['--insecure', '--host', host], {})
      expect(read).toThrow(UsageError)
      expect(read).toThrow(/^--host must be a name or an address, without scheme and port, not [^\n]*$/)
    },
  )

  test('in a directory that is relative, nested, behind a link, or there already', () =>
    withTempDir(async (directory) => {
      await mkdir(join(directory, 'there'))
      await symlink(join(directory, 'there'), join(directory, 'link'))
      for (const data of ['there', 'a/b/c', 'link', './with/slash/']) {
        const child = spawn(process.execPath, [CLI, 'serve', '--port', '0', '--data', data], {
          cwd: directory,
          env: ENV,
          stdio: ['ignore', 'pipe', 'inherit'],
        })
        await once(child.stdout, 'data')
        child.kill('SIGTERM')
        expect((await once(child, 'exit'))[0]).toBe(0)
        expect((await stat(join(directory, data, 'CURRENT'))).isFile()).toBe(true)
      }
    }))

  test('with one compression and block cache after another: the files of each are read', () =>
    withTempDir(async (data) => {
      const tunings = [[], ['--compression', 'none', '--block-cache-bytes', '0'], ['--block-cache-bytes', '1000000']]
      for (const [i, flags] of tunings.entries()) {
        const server = await startProcess(data, flags)
        const [key, before] = [i, i - 1].map((n) => `${server.url}/v1/kv/key${n}`) as [string, string]
        if (i > 0) expect(await (await fetch(before)).text()).toBe('x'.repeat(1000))
        expect((await fetch(key, { method: 'PUT', body: 'x'.repeat(1000) })).status).toBe(200)
        await server.stop('SIGTERM')
        // Each start makes a table of the log that the one before has left.
        const tables = (await readdir(data)).filter((file) => file.endsWith('.ldb'))
        const bytes = await Promise.all(tables.map((table) => readFile(join(data, table), 'latin1')))
        expect(bytes.filter((table) => table.includes('x'.repeat(900)))).toHaveLength(i === 0 ? 0 : 1)
      }
    }))

  test('and its stop are lines of the log: what was opened, how long it took, where it listens, why it ends', () =>
    withTempDir(async (directory) => {
      const data = join(directory, 'db')
      const lines = async (signal: NodeJS.Signals): Promise<Record<string, unknown>[]> => {
        const child = spawn(process.execPath, [CLI, 'serve', '--port', '0', '--data', data], { env: ENV })
        let output = ''
        child.stdout.on('data', (chunk) => {
          output += chunk
          if (/listening on/.test(output)) child.kill(signal)
        })
        await once(child, 'close')
        const [ready, ...rest] = output
          .trimEnd()
          .split('\n')
          .map((line): Record<string, unknown> => JSON.parse(line))
        expect(ready?.['msg']).toMatch(/^PerKV \S+ is ready on http:\/\/127\.0\.0\.1:\d+, data in /)
        return rest
      }
      const first = await lines('SIGTERM')
      expect(first).toMatchObject([
        { level: 'info', directory: data, isNew: true, msg: expect.stringMatching(/^made a new database in .* ms$/) },
        { level: 'info', address: '127.0.0.1', msg: expect.stringMatching(/^listening on http:/) },
        { level: 'info', signal: 'SIGTERM', msg: expect.stringMatching(/^SIGTERM: stopping/) },
        { level: 'info', durationMs: expect.any(Number), msg: 'stopped' },
      ])
      const [opened] = await lines('SIGKILL')
      expect(opened).toMatchObject({ isNew: false, durationMs: expect.any(Number), locks: 0 })
      expect(opened?.['msg']).toMatch(/^opened the database in .* in \d+ ms, \d+ KiB of log replayed, 0 locks stand$/)
    }))

  test.skipIf(process.platform !== 'linux')('goes on where its log cannot be written (Linux)', () =>
    withTempDir(async (directory) => {
      const port = await freePort()
      const full = openSync('/dev/full', 'w')
      const args = [CLI, 'serve', '--port', String(port), '--data', join(directory, 'db')]
      const child = spawn(process.execPath, args, { env: ENV, stdio: ['ignore', full, 'inherit'] })
      closeSync(full)
      await until(() => isUp(`http://127.0.0.1:${port}`))
      child.kill('SIGTERM')
      expect((await once(child, 'exit'))[0]).toBe(0)
    }),
  )
})

describe('signals', () => {
  test('SIGHUP ends no server, with or without something to read again', () =>
    withTempDir(async (directory) => {
      await writeFile(join(directory, 'tokens'), 'rw 0123456789abcdef\n', { mode: 0o600 })
      for (const flags of [[], ['--token-file', join(directory, 'tokens')]]) {
        const child = spawn(
          process.execPath,
          [CLI, 'serve', '--port', '0', '--data', join(directory, 'db'), ...flags],
          {
            env: ENV,
            stdio: ['ignore', 'pipe', 'inherit'],
          },
        )
        const [line] = await once(child.stdout, 'data')
        const url = /http:\/\/[\d.:]+/.exec(String(line))?.[0] ?? ''
        for (let i = 0; i < 3; i++) {
          child.kill('SIGHUP')
          expect(await isUp(url)).toBe(true)
        }
        child.kill('SIGTERM')
        expect(await once(child, 'exit')).toEqual([0, null])
      }
    }))

  test('SIGTERM to npm start ends the server', () =>
    withTempDir(async (directory) => {
      const port = await freePort()
      const url = `http://127.0.0.1:${port}`
      // Without the build before it, which would change the files that other tests run.
      const args = ['--ignore-scripts', 'start', '--', '--port', String(port), '--data', join(directory, 'db')]
      const npm: ChildProcess = spawn('npm', args, { cwd: PROJECT, env: ENV, stdio: 'ignore' })
      try {
        await until(() => isUp(url))
        npm.kill('SIGTERM')
        await once(npm, 'exit')
        await until(async () => !(await isUp(url)))
        const again = await startProcess(join(directory, 'db'), ['--port', String(port)])
        await again.stop('SIGTERM')
      } finally {
        npm.kill('SIGKILL')
      }
    }))
})

test.skipIf(!HAS_OPENSSL)('the ready line has a name that clients can use (needs openssl)', () =>
  withTempDir(async (directory) => {
    const certify = (name: string, san: string): string[] => {
      const [crt, key] = [join(directory, `${name}.crt`), join(directory, `${name}.key`)]
      const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '1']
      const subject = ['-subj', `/CN=${name}`, '-addext', `subjectAltName=${san}`]
      execFileSync('openssl', ['req', '-x509', ...kind, ...subject, '-keyout', key, '-out', crt], { stdio: 'ignore' })
      return ['--tls-cert-file', crt, '--tls-key-file', key]
    }
    const every = ['--insecure', '--host', '0.0.0.0']
    const cases: [string[], RegExp][] = [
      [[], /ready on http:\/\/127\.0\.0\.1:\d+,/],
      [every, /ready on http:\/\/localhost:\d+,/],
      [[...every, ...certify('local', 'DNS:localhost')], /ready on https:\/\/localhost:\d+,.* --cacert \S+local\.crt /],
      [[...every, ...certify('ip', 'IP:127.0.0.1')], /ready on https:\/\/127\.0\.0\.1:\d+,/],
      [
        [...every, ...certify('name', 'DNS:*.example.com,DNS:kv.example.com')],
        /ready on https:\/\/kv\.example\.com:\d+,/,
      ],
    ]
    for (const [flags, says] of cases) {
      const child = spawn(
        process.execPath,
        [CLI, 'serve', '--log-format', 'text', '--port', '0', '--data', join(directory, 'db'), ...flags],
        {
          env: ENV,
          stdio: ['ignore', 'pipe', 'inherit'],
        },
      )
      const line = String((await once(child.stdout, 'data'))[0]).split('\n', 1)[0] ?? ''
      expect(line).toMatch(says)
      // The curl that it suggests works, where its name is one of this machine.
      if (!line.includes('example.com')) {
        const curl = /Try: curl (.*)$/.exec(line)?.[1]?.split(' ') ?? []
        expect(JSON.parse(execFileSync('curl', ['-s', ...curl], { encoding: 'utf8' }))).toHaveProperty('commit_ts')
      }
      child.kill('SIGTERM')
      await once(child, 'exit')
    }
  }),
)

test('the help of perkv is one screen, and that of serve has every limit', async () => {
  const help = await runCli(['--help'])
  expect(help).toMatchObject({ code: 0, stderr: '' })
  const lines = help.stdout.trimEnd().split('\n')
  expect([lines.length <= 38, lines.every((line) => line.length <= 80)]).toEqual([true, true])
  for (const args of [[], ['-h'], ['help']]) expect(await runCli(args)).toEqual(help)
  const serve = (await runCli(['serve', '--help'])).stdout
  for (const name of Object.keys(limitFlags)) expect(serve).toContain(`--${name} `)
  expect(serve).toContain('--durability sync|1s|async')
})
