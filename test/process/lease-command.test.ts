import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { afterAll, expect, test } from 'vitest'
import { connect } from '../../src/client/index.js'
import { CLI, ENV, finish, killAll, runCli, type ServerProcess, startProcess, withTempDir } from './server-process.js'

/** `perkv lease NAME -- COMMAND`, with signals and while the server dies or this process stands still. */

const children: ChildProcessByStdio<null, Readable, Readable>[] = []

afterAll(() => {
  killAll()
  for (const { pid, exitCode } of children) if (pid !== undefined && exitCode === null) process.kill(pid, 'SIGKILL')
})

const withServer = (run: (server: ServerProcess) => Promise<void>): Promise<void> =>
  withTempDir(async (directory) => {
    const server = await startProcess(join(directory, 'data'))
    await run(server)
    await server.stop('SIGKILL')
  })

/** Starts `perkv lease` and waits for the first line of its command. */
async function holding(server: ServerProcess, flags: readonly string[], script: string) {
  const args = [CLI, 'lease', '--server', server.url, ...flags, 'jobs/x', '--', 'sh', '-c', script]
  const child = spawn(process.execPath, args, { env: ENV, stdio: ['ignore', 'pipe', 'pipe'] })
  children.push(child)
  const finished = finish(child)
  await once(createInterface({ input: child.stdout }), 'line')
  return { child, finished }
}

/** Ends itself on SIGTERM, with a word. */
const POLITE = `trap 'echo ended; exit 0' TERM; echo begun; while :; do sleep 0.02; done`
/** Does not end itself, nor does what it has started. */
const DEAF = `trap '' TERM; echo begun; sleep 600 & echo $!; while :; do sleep 0.02; done`

test('the command has the lease and its fence, and ends with its own code', () =>
  withServer(async (server) => {
    const db = connect(server.url)
    const run = (...args: string[]) => runCli(['lease', 'jobs/x', ...args], { PERKV_SERVER: server.url })
    const nested = `'${process.execPath}' '${CLI}'`
    const body = `{"checks": [{"lease": "'$PERKV_LEASE'", "fence": '$PERKV_FENCE'}], "ops": [{"op": "put", "key": "k", "value": "v"}]}`
    const ran = await run('--', 'sh', '-c', `echo '${body}' | ${nested} txn - > /dev/null; ${nested} leases; exit 7`)
    expect(ran).toMatchObject({ code: 7, stderr: '' })
    expect(JSON.parse(ran.stdout)).toMatchObject({ name: 'jobs/x', ttl_ms: 30_000 })
    expect(await db.get('k')).toBe('v')
    expect(await db.leases.list()).toEqual([])
    expect(await run('--', 'sh', '-c', 'kill -9 $$')).toMatchObject({ code: 137 })
    expect(await run('--', '/nix')).toMatchObject({ code: 127, stderr: expect.stringMatching(/^perkv: \/nix cannot/) })
    expect(await run('--', '/')).toMatchObject({ code: 126 })
    expect(await run('--grace', '7s', '--', 'true')).toMatchObject({ code: 2 })
    expect(await run()).toMatchObject({ code: 2, stderr: expect.stringMatching(/COMMAND is missing/) })
    await db.lease('jobs/x', { ttlMs: 60_000 })
    const held = await run('--wait', '0', '--', 'echo', 'run')
    expect(held).toMatchObject({ code: 1, stdout: '', stderr: expect.stringMatching(/^perkv: lease_held: .*\n$/) })
    await db.close()
  }))

test('a command waits for the one before, and signals go to the command that runs', () =>
  withServer(async (server) => {
    const first = await holding(server, [], POLITE)
    const waiting = spawn(process.execPath, [CLI, 'lease', '--server', server.url, 'jobs/x', '--', 'echo', 'mine'], {
      env: ENV,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    children.push(waiting)
    const second = finish(waiting)
    await once(waiting.stderr, 'data') // It says what it waits for.
    first.child.kill('SIGTERM')
    expect(await first.finished).toMatchObject({ code: 0, stdout: 'begun\nended\n' })
    expect(await second).toEqual({ code: 0, stdout: 'mine\n', stderr: 'perkv: waiting for the lease jobs/x\n' })
  }))

test('a signal ends the wait', () =>
  withServer(async (server) => {
    const first = await holding(server, [], POLITE)
    const waiting = spawn(process.execPath, [CLI, 'lease', '--server', server.url, 'jobs/x', '--', 'echo', 'mine'], {
      env: ENV,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    children.push(waiting)
    const second = finish(waiting)
    await once(waiting.stderr, 'data')
    waiting.kill('SIGINT')
    expect(await second).toMatchObject({ code: 130, stdout: '' })
    first.child.kill('SIGTERM')
    expect(await first.finished).toMatchObject({ code: 0 })
  }))

test('a server that is killed ends the command before the lease is over', () =>
  withServer(async (server) => {
    const { finished } = await holding(server, ['--ttl', '3s', '--grace', '600ms'], POLITE)
    await server.stop('SIGKILL')
    const { code, stdout, stderr } = await finished
    expect({ code, stdout }).toEqual({ code: 1, stdout: 'begun\nended\n' })
    expect(stderr).toMatch(/^perkv: the lease jobs\/x could not be renewed: the command is ended\n/m)
  }))

test('a command that does not end itself is killed, with what it has started', () =>
  withServer(async (server) => {
    const { finished } = await holding(server, ['--ttl', '2s', '--grace', '300ms'], DEAF)
    await server.stop('SIGKILL')
    const { code, stdout } = await finished
    expect(code).toBe(137)
    const pid = Number(stdout.split('\n')[1])
    await expect.poll(() => isAlive(pid)).toBe(false)
  }))

test('the lease is held until what the command has left running is over', () =>
  withServer(async (server) => {
    const list = `'${process.execPath}' '${CLI}' leases --server ${server.url}`
    const { finished } = await holding(
      server,
      [],
      `echo begun; { while kill -0 $$ 2> /dev/null; do sleep 0.02; done; ${list}; } & exit 3`,
    )
    const { code, stdout } = await finished
    expect({ code, stdout }).toEqual({ code: 3, stdout: expect.stringMatching(/^begun\n\{"name":"jobs\/x",.*\n$/) })
    const db = connect(server.url)
    expect(await db.leases.list()).toEqual([])
    await db.close()
  }))

test('a command stands still with the process that renews its lease', () =>
  withServer(async (server) => {
    // A shell that starts another process waits in the state D for a moment, and so may not be seen to stand still.
    const { child, finished } = await holding(server, [], 'echo begun; exec sleep 600')
    const stateOf = (pid: number) => readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) (\S).*$/s, '$1')
    const { pid = 0 } = child
    const command = Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim())
    child.kill('SIGTSTP')
    await expect.poll(() => [stateOf(pid), stateOf(command)]).toEqual(['T', 'T'])
    child.kill('SIGCONT')
    await expect.poll(() => stateOf(command)).not.toBe('T')
    child.kill('SIGTERM')
    expect(await finished).toMatchObject({ code: 143 })
  }))

test('a process that stood still ends its command when it goes on', () =>
  withServer(async (server) => {
    const db = connect(server.url)
    const { child, finished } = await holding(server, ['--ttl', '2s'], POLITE)
    child.kill('SIGSTOP')
    const next = await db.lease('jobs/x', { ttlMs: 60_000, waitMs: 60_000 })
    child.kill('SIGCONT')
    const { code, stdout } = await finished
    expect({ code, stdout }).toEqual({ code: 1, stdout: 'begun\nended\n' })
    expect(next.signal.aborted).toBe(false)
    expect(await db.leases.get('jobs/x')).toMatchObject({ fence: next.fence })
    await db.close()
  }))

test('an unreachable server runs nothing', async () => {
  const args = ['lease', '--server', 'http://127.0.0.1:1', 'jobs/x', '--', 'echo', 'run']
  expect(await runCli(args)).toMatchObject({ code: 1, stdout: '', stderr: expect.stringMatching(/^perkv: no server/) })
})

/** A zombie, which nobody has waited for, is not. */
function isAlive(pid: number): boolean {
  try {
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}
