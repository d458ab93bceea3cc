import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { COMMANDS } from '../../src/commands/command-table.js'
import { UsageError } from '../../src/server/flags.js'
import {
  CLI,
  ENV,
  type Finished,
  finish,
  killAll,
  runCli,
  type ServerProcess,
  startProcess,
  withTempDir,
} from './server-process.js'

let server: ServerProcess
let end: () => void
let ended: Promise<void>

/** One server for all. */
beforeAll(async () => {
  await new Promise<void>((ready) => {
    ended = withTempDir(async (directory) => {
      server = await startProcess(join(directory, 'data'))
      await new Promise<void>((done) => {
        end = done
        ready()
      })
      await server.stop('SIGTERM')
    })
  })
})
afterAll(async () => {
  end()
  await ended
  killAll()
})

const perkv = (...args: string[]): Promise<Finished> => runCli(args, { PERKV_SERVER: server.url })

/** What a command fails with that prints nothing, without the process around it, which takes most of its time to start. */
async function errorOf([name, ...args]: readonly string[], env: Record<string, string> = {}): Promise<unknown> {
  const command = await COMMANDS.get(String(name))?.load()
  return command?.run(args, env).then(
    () => undefined,
    (error) => error,
  )
}

/** Runs a line of bash, in which `perkv` is the program. */
async function bash(script: string): Promise<Finished> {
  const child = spawn('bash', ['-c', `perkv() { '${process.execPath}' '${CLI}' "$@"; }\n${script}`], {
    env: { ...ENV, PERKV_SERVER: server.url },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  return finish(child)
}

describe('exit codes', () => {
  test('0 found or done, 1 absent without a word', async () => {
    expect(await perkv('put', 'k', 'v')).toMatchObject({ code: 0, stderr: '' })
    expect(await perkv('get', 'k', '--raw')).toEqual({ code: 0, stdout: 'v', stderr: '' })
    expect(await perkv('del', 'k')).toMatchObject({ code: 0, stderr: '' })
    expect(await perkv('get', 'k')).toEqual({ code: 1, stdout: '', stderr: '' })
  })

  test.each([
    [['put', 'k', 'v', '--if-match', '5'], 1, /^perkv: precondition_failed: .*\n$/],
    [['txn', '/no such file'], 1, /^perkv: ENOENT: .*\n$/],
    [['put', 'k', 'v', '--idempotency-key', 'a\nb'], 2, /^perkv: idempotencyKey must .*\n$/],
    [['scan', '--limt', '5'], 2, /^perkv: Unknown option '--limt': did you mean --limit\? .*\n$/],
  ])('%j ends with %i and one line', async (args, code, line) => {
    const finished = await perkv(...args)
    expect(finished).toMatchObject({ code, stdout: '' })
    expect(finished.stderr).toMatch(line)
  })

  test.each([
    [['observers', 'a\nb'], /^the name of an observer must .*$/],
    [['txn', '/dev/null', '--idempotency-key', ''], /^idempotencyKey must .*$/],
    [['get'], /^KEY is missing$/],
    [['get', 'a', 'b'], /^one argument too many: "b"$/],
    [['get', '--nope', 'k'], /^Unknown option '--nope'.*$/],
    [['scan', '--limit', '-1'], /^.*--limit.*$/],
    [['get', 'k', '--server', 'ftp://x'], /^--server must be an http or https URL.*$/],
  ])('%j is used wrongly, which is the code 2', async (args, line) => {
    const error = await errorOf(args, { PERKV_SERVER: server.url })
    expect(error).toBeInstanceOf(UsageError)
    expect((error as Error).message).toMatch(line)
  })

  test('a key may begin with a dash, and be called --help, after two of them', async () => {
    expect((await perkv('put', '--', '--help', '-5')).code).toBe(0)
    expect((await perkv('get', '--raw', '--', '--help')).stdout).toBe('-5')
  })
})

describe('a server that is not there', () => {
  async function portOf(listener: (socket: Socket) => void, run: (port: number) => Promise<void>): Promise<void> {
    const silent = createServer(listener).listen(0, '127.0.0.1')
    await once(silent, 'listening')
    await run((silent.address() as AddressInfo).port)
    silent.close()
  }

  const NOBODY = 'http://127.0.0.1:1'
  const UNREACHED = 'no server was reached at http://127\\.0\\.0\\.1:1, .*ECONNREFUSED.*'

  // Each tries for two seconds.
  test.concurrent('perkv get: nobody listens', async () => {
    const finished = await runCli(['get', 'k', '--server', NOBODY])
    expect(finished).toMatchObject({ code: 1, stdout: '' })
    expect(finished.stderr).toMatch(new RegExp(`^perkv: ${UNREACHED}\n$`))
  })
  test.concurrent.each([['put', 'k', 'v'], ['scan'], ['watch', 'k'], ['changes']])(
    '%s: nobody listens',
    async (...args) => {
      expect(await errorOf([...args, '--server', NOBODY])).toMatchObject({
        code: 'failed',
        message: expect.stringMatching(new RegExp(`^${UNREACHED}$`)),
      })
    },
  )

  test.concurrent('nobody answers; another server answers', async () => {
    await portOf(
      () => {},
      async (port) => {
        const finished = await runCli(['get', 'k', '--server', `http://127.0.0.1:${port}`])
        expect(finished).toMatchObject({ code: 1, stdout: '' })
        expect(finished.stderr).toMatch(/^perkv: no server was reached at .*\n$/)
      },
    )
    await portOf(
      (socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi'),
      async (port) => {
        const finished = await runCli(['get', 'k', '--server', `http://127.0.0.1:${port}`])
        expect(finished).toMatchObject({ code: 1, stdout: '' })
        expect(finished.stderr).toMatch(/^perkv: .*this is no PerKV server, or something stands before it\n$/)
      },
    )
  })
})

describe('bytes that are not UTF-8', () => {
  test.each([`put $'k\\xff' v`, `put k $'\\xed\\xa0\\x80'`, `scan --prefix=$'k\\xff'`, `serve --data $'\\xff'`])(
    '%s is used wrongly',
    async (line) => {
      const finished = await bash(`cd /tmp; perkv ${line}`)
      expect(finished).toMatchObject({
        code: 2,
        stdout: '',
        stderr: expect.stringContaining('is not UTF-8: give keys'),
      })
    },
  )

  test('a key that has the replacement character is another one, and is stored', async () => {
    const { stdout } = await bash(
      `perkv put $'k\\xef\\xbf\\xbd' $'v\\xef\\xbf\\xbd' > /dev/null; perkv get 'k\ufffd' --raw`,
    )
    expect(stdout).toBe('v\ufffd')
    expect(await bash(`PERKV_PREFIX=$'\\xff' perkv dump`)).toMatchObject({ code: 2, stdout: '' })
  })

  test('keys of any bytes are given in base64, to dump too', async () => {
    await bash('perkv put --base64 /wA= AAH/')
    const { stdout } = await bash('perkv dump --quiet --base64 --prefix /w==')
    expect(JSON.parse(stdout)).toMatchObject({ key: { base64: '/wA=' }, value: { base64: 'AAH/' } })
  })
})

describe('pipes', () => {
  test('bytes of any kind go in by stdin and come out raw', async () => {
    const { stdout } = await bash(`
      head -c 70000 /dev/urandom > "$0.$$"
      perkv put blob - < "$0.$$" > /dev/null && perkv get blob --raw | cmp - "$0.$$" && echo same
      rm "$0.$$"`)
    expect(stdout).toBe('same\n')
  })

  test('a reader that stops early ends the command quietly', async () => {
    // A megabyte, in several pages: much more than pipes hold.
    const lines = Array.from({ length: 4000 }, (_, i) => `{"key":"many/${i}","value":"${'x'.repeat(250)}"}\n`).join('')
    await withTempDir(async (directory) => {
      await writeFile(join(directory, 'lines'), lines)
      expect((await perkv('load', '--quiet', join(directory, 'lines'))).code).toBe(0)
    })
    const finished = await bash('set -o pipefail; perkv scan --prefix many/ | head -1')
    expect(finished).toMatchObject({ code: 0, stderr: '' })
    expect(finished.stdout.split('\n')).toHaveLength(2)
    expect((await bash('perkv scan --prefix many/ | wc -l')).stdout.trim()).toBe('4000')
    for (const [command, readers] of [
      ['dump', ['head -1', 'true', 'head -c 700000']],
      ['dump --quiet', ['head -1']],
      ['backup -', ['true', 'head -c 700000']],
      ['help', ['head -1', 'true']],
      ['completion bash', ['true']],
      ['locks', ['true']],
      ['top', ['head -1']],
    ] as const)
      for (const reader of readers) {
        const { code, stderr } = await bash(`set -o pipefail; perkv ${command} | ${reader} > /dev/null`)
        expect({ code, stderr: stderr.replace(/^perkv \w+: [\d,]+ (lines|keys), .* in .*\n$/, '') }, command).toEqual({
          code: 0,
          stderr: '',
        })
      }
    const { gc } = JSON.parse((await perkv('status')).stdout) as { gc: { pins: number } }
    expect(gc.pins).toBe(0)
    expect(await bash('perkv dump 2>&1 > /dev/null | true; echo $PIPESTATUS')).toMatchObject({ stdout: '0\n' })
  })

  test.each(['dump', 'backup -', 'scan', 'help', 'completion bash'])(
    '%s says once that stdout is full',
    async (command) => {
      await fetch(`${server.url}/v1/kv/full`, { method: 'PUT', body: '1' })
      const { code, stderr } = await bash(`perkv ${command} > /dev/full`)
      expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(/^perkv: stdout: .*ENOSPC.*\n$/) })
    },
  )

  test('a byte order mark at the beginning of lines is passed over', async () => {
    const { stderr } = await bash(
      `printf '\\xef\\xbb\\xbf{"key":"bom","value":"1"}\\n' | perkv load --quiet - && perkv get bom --raw`,
    )
    expect(stderr).toBe('')
    expect((await bash(`printf '\\xef\\xbb\\xbf{"ops":[]}' | perkv txn -`)).code).toBe(0)
  })

  test('a transaction from stdin', async () => {
    const finished = await bash(`echo '{"ops": [{"op": "increment", "key": "sold"}]}' | perkv txn -`)
    expect(finished).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse(finished.stdout)).toMatchObject({ results: [{ value: '1' }] })
  })

  const call = async (name: string, body: object): Promise<Record<string, unknown>> => {
    const headers = { 'content-type': 'application/json' }
    const init = { method: 'POST', headers, body: JSON.stringify(body) }
    return (await (await fetch(`${server.url}/v1/percolator/${name}`, init)).json()) as Record<string, unknown>
  }

  test('changes say once which lock holds them back', async () => {
    const startTs = Number((await call('tso', {}))['ts'])
    const mutations = [{ op: 'put', key: 'in the way', value: 'v' }]
    const child = spawn(process.execPath, [CLI, 'changes', '--resolved', '--server', server.url], {
      env: ENV,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
    await lines.next()
    await call('prewrite', { mutations, primary: 'in the way', start_ts: startTs, lock_ttl: 600_000 })
    const finished = finish(child)
    await once(child.stderr, 'data')
    const resolvedNext = async (): Promise<number> => JSON.parse(String((await lines.next()).value)).resolved_ts
    await resolvedNext()
    const heldTs = await resolvedNext() // Two heartbeats, at each of which it could be said again.
    await call('rollback', { keys: ['in the way'], start_ts: startTs })
    while ((await resolvedNext()) <= heldTs);
    child.kill('SIGINT')
    expect(await finished).toMatchObject({ code: 0 })
    expect((await finished).stderr).toMatch(
      new RegExp(
        `^perkv: key "in the way" is locked by the transaction at ${startTs}, with \\d+ ms left; ` +
          'it holds back what was committed above \\d+\n$',
      ),
    )
  })

  test('changes --once says which lock holds it back, and where another run goes on', async () => {
    await perkv('put', 'once/1', 'before')
    const startTs = Number((await call('tso', {}))['ts'])
    const mutations = [{ op: 'put', key: 'held', value: 'v' }]
    await call('prewrite', { mutations, primary: 'held', start_ts: startTs, lock_ttl: 600_000 })
    await perkv('put', 'once/2', 'after')
    const { code, stdout, stderr } = await perkv('changes', '--prefix', 'once/', '--since', '1', '--once')
    expect([code, stdout.match(/"key":"once.."/g)]).toEqual([1, ['"key":"once/1"']])
    expect(stderr).toMatch(
      new RegExp(
        `^perkv: key_locked: key "held" is locked by the transaction at ${startTs}, with \\d+ ms left; ` +
          `it holds back what was committed above ${startTs - 1}: go on with --since ${startTs - 1}\n$`,
      ),
    )
    await call('rollback', { keys: ['held'], start_ts: startTs })
    const rest = await perkv('changes', '--prefix', 'once/', '--since', String(startTs - 1), '--once')
    expect([rest.code, rest.stdout.match(/"key":"once.."/g)]).toEqual([0, ['"key":"once/2"']])
  })

  test.each([
    ['watch', 'w'],
    ['changes', '--prefix', 'w', '--snapshot'],
  ])('%s goes on until SIGINT, which ends it with 0', async (...args) => {
    await perkv('put', 'w', '1')
    const child = spawn(process.execPath, [CLI, ...args, '--server', server.url], {
      env: ENV,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
    expect((await lines.next()).value).toContain('"value":"1"')
    await perkv('put', 'w', '2')
    for (;;) if (String((await lines.next()).value).includes('"value":"2"')) break
    child.kill('SIGINT')
    expect(await once(child, 'exit')).toEqual([0, null])
  })
})

test('the token is in a file, or in the environment', () =>
  withTempDir(async (directory) => {
    const token = 'a-token-of-the-clients'
    const [list, alone] = [join(directory, 'tokens'), join(directory, 'token')]
    await writeFile(list, `rw ${token}\n`, { mode: 0o600 })
    await writeFile(alone, `${token}\n`)
    const guarded = await startProcess(join(directory, 'data'), ['--token-file', list])
    const put = ['put', 'k', 'v', '--server', guarded.url]
    expect(await runCli(put)).toMatchObject({ code: 1, stderr: expect.stringMatching(/^perkv: unauthorized: .*\n$/) })
    expect((await runCli(put, { PERKV_CLIENT_TOKEN_FILE: alone })).code).toBe(0)
    const lines = join(directory, 'lines')
    await writeFile(lines, '{"key":"k","value":"v"}\n')
    const load = (args: readonly string[], env: Record<string, string>) =>
      errorOf(['load', '--quiet', '--server', guarded.url, ...args, lines], env)
    expect(await load(['--token-file', alone], {})).toBeUndefined()
    expect(await load([], { PERKV_TOKEN: token })).toBeUndefined()
    expect(await load([], { PERKV_TOKEN_FILE: alone })).toBeUndefined()
    // The server's own list is no token of a client.
    expect(await load([], { PERKV_TOKEN_FILE: list })).toMatchObject({ message: expect.stringMatching(/unauthorized/) })
    expect(await load([], { PERKV_TOKEN_FILE: list, PERKV_TOKEN: token })).toBeUndefined()
    expect(await load(['--token-file', list], {})).toBeInstanceOf(UsageError)
    await guarded.stop('SIGTERM')
  }))

test('every command has a help of one screen with an example', async () => {
  const { stdout: help } = await runCli(['help'])
  const names = [...help.matchAll(/^.{14} (\w+) +\w/gm)].map(([, name]) => String(name))
  expect(names).toEqual([...COMMANDS.keys()])
  for (const [name, entry] of COMMANDS) {
    const { help } = await entry.load()
    const shown = name === 'bigtable' ? 'store' : name // Another name of it.
    expect(help).toMatch(new RegExp(`^Usage: perkv ${shown}\\b`))
    if (name !== 'serve') expect(help.split('\n').length).toBeLessThan(30)
  }
  const { help: ofScan } = (await COMMANDS.get('scan')?.load()) ?? {}
  for (const asked of [
    ['help', 'scan'],
    ['scan', '-h', '--limt'],
  ])
    expect(await runCli(asked)).toEqual({ code: 0, stdout: ofScan, stderr: '' })
  expect(await runCli(['help', 'nope'])).toMatchObject({ code: 2 })
})

describe('shell', () => {
  test('runs lines from a pipe, with a transaction', async () => {
    const { stdout, stderr, code } = await bash(
      `printf '%s\\n' "put 's 1' 'a b'" '# a comment' begin "put s2 x" "get s2" commit "get s2" exit "get nix" | perkv shell`,
    )
    expect({ stderr, code }).toEqual({ stderr: '', code: 0 })
    const lines = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(lines).toMatchObject([{}, {}, {}, { key: 's2', value: 'x' }, {}, { key: 's2', value: 'x' }])
    expect(lines[4].commit_ts).toBe(lines[5].commit_ts)
    expect((await perkv('get', '--raw', 's 1')).stdout).toBe('a b')
  })

  test('goes on after a line that fails, and ends with 1; an open transaction is rolled back', async () => {
    const finished = await bash(
      `printf '%s\\n' nope cuont "help nope" "scan --limt=3" "get 'x" "get" "put k -" commit begin begin count "put lost 1" | perkv shell`,
    )
    expect(finished.stderr.trimEnd().split('\n')).toEqual([
      'unknown command "nope": help lists them',
      'unknown command "cuont": did you mean count?',
      'unknown command "nope": help lists them',
      "Unknown option '--limt': did you mean --limit?",
      "the quote ' is not closed",
      'KEY is missing',
      'a shell has no stdin for a command: give the value, or a file',
      'there is no open transaction: begin one',
      'a transaction is open: commit or rollback',
      'count does not see the transaction: end it first',
      'the open transaction is rolled back',
    ])
    expect(finished.code).toBe(1)
    expect((await perkv('get', 'lost')).code).toBe(1)
  })
})

describe('completion', () => {
  const has = (program: string): boolean => spawnSync(program, ['--version']).error === undefined
  const shells = ['bash', 'zsh', 'fish'] as const

  for (const shell of shells) {
    if (!has(shell)) console.warn(`${shell} is not there: its completion script is not tried`)
    test.skipIf(!has(shell))(`the script for ${shell} is one`, async () => {
      await withTempDir(async (directory) => {
        const path = join(directory, 'script')
        await writeFile(path, (await runCli(['completion', shell])).stdout)
        const { status, stderr } = spawnSync(shell, ['-n', path], { encoding: 'utf8' })
        expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
      })
    })
  }

  const TABLE: readonly (readonly [string, readonly string[]])[] = [
    ['sc', ['scan']],
    ['scan --pre', ['--prefix']],
    ['scan --limit ', []],
    ['completion z', ['zsh']],
    ['serve --key-b', ['--key-bytes-max']],
    ['help wat', ['watch']],
    ['restore some', ['some file']],
    ['get --token-file some', ['some file']],
    ['get some', []],
  ]

  test('bash completes each line', () =>
    withTempDir(async (directory) => {
      await writeFile(join(directory, 'some file'), '')
      const completed = TABLE.map(([line]) => {
        const words = line.split(' ').map((word) => `'${word}'`)
        return `COMP_WORDS=(perkv ${words.join(' ')}); COMP_CWORD=${words.length}; COMPREPLY=(); _perkv
          printf '%s,' "\${COMPREPLY[@]}"; echo`
      })
      const { stdout, stderr } = await bash(
        `source <(perkv completion bash); cd '${directory}'\n${completed.join('\n')}`,
      )
      const words = stdout.split('\n').map((line) => line.split(',').filter(Boolean))
      expect({ stderr, words }).toEqual({ stderr: '', words: [...TABLE.map(([, want]) => want), []] })
    }))

  test.skipIf(!has('fish'))('fish completes', async () => {
    const { stdout } = await bash(`script=$(mktemp); perkv completion fish > $script
      fish -c "source $script; complete -C 'perkv sc'; complete -C 'perkv scan --pre'; complete -C 'perkv completion z'"; rm $script`)
    expect(stdout.split('\n').map((line) => line.split('\t')[0])).toEqual(['scan', '--prefix', 'zsh', ''])
  })
})
