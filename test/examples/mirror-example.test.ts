import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, expect, test } from 'vitest'
import { connect, type Db } from '../../src/client/index.js'
import { Random } from '../anomalies/random.js'
import { report, settings } from '../anomalies/settings.js'
import { MortalServer } from '../process/mortal-server.js'
import { ENV, killAll, withTempDir } from '../process/server-process.js'
import { ROOT, runProgram } from './run-program.js'

/** The mirror as a user runs it, while it and both servers are killed. */

const { seed, txns, kills } = settings({ seed: 1, txns: 60, kills: 1 })
const MIRROR = join(ROOT, 'docs/examples/mirror/mirror.mjs')
const PREFIX = 'user/'
const LAST = `${PREFIX}last`
const WRITERS = 4
const POLL_MS = 50

const mirrors: ChildProcess[] = []
afterAll(() => {
  for (const mirror of mirrors) mirror.kill('SIGKILL')
  killAll()
})

async function startMirror(source: string, target: string): Promise<ChildProcess> {
  const args = [MIRROR, source, target, PREFIX]
  const child = spawn(process.execPath, args, { env: ENV, cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] })
  mirrors.push(child)
  await once(createInterface({ input: child.stdout }), 'line')
  return child
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<unknown> {
  const ended = once(child, 'exit')
  child.kill(signal)
  return (await ended)[0]
}

async function write(db: Db, random: Random, onTry: () => boolean): Promise<void> {
  const keys = Array.from({ length: 60 }, (_, i) => `${i % 6 === 0 ? 'other/' : PREFIX}${i}`)
  while (onTry())
    try {
      await db.transaction(async (txn) => {
        for (const key of random.shuffled(keys).slice(0, 1 + random.below(5)))
          await (random.chance(0.3) ? txn.delete(key) : txn.put(key, `${txn.startTs} ${'v'.repeat(random.below(100))}`))
      })
    } catch {} // The server is away.
}

test('kill -9 of both servers and of the mirror: the copy is the source, of every moment in which it is looked at', () =>
  withTempDir(async (directory) => {
    const random = new Random(seed)
    const source = await MortalServer.start(join(directory, 'source'))
    const target = await MortalServer.start(join(directory, 'target'))
    const servers = [source, target]
    const [from, to] = [connect(source.url), connect(target.url)]
    for (const key of ['a', 'b', 'c', 'z']) await to.put(PREFIX + key, 'left by somebody')
    await from.transaction(async (txn) => {
      for (let i = 0; i < 3000; i++) await txn.put(`${PREFIX}old/${i}`, 'x'.repeat(100))
    })
    let mirror = await startMirror(source.url, target.url)
    const counts = { mirrors: 0, equal: 0, notYet: 0 }
    const compare = async (): Promise<void> => {
      const { code, stdout, stderr } = await runProgram(MIRROR, ['compare', source.url, target.url, PREFIX])
      if (code === 0) counts.equal++
      else {
        expect({ stdout, stderr }).toEqual({ stdout: 'the copy is not whole yet\n', stderr: '' })
        counts.notYet++
      }
    }
    let untilKill = txns
    let killsLeft = kills
    let killing: Promise<void> | undefined
    const kill = async (): Promise<void> => {
      const server = servers[killsLeft % 3]
      if (server === undefined) {
        counts.mirrors++
        await end(mirror, 'SIGKILL')
        mirror = await startMirror(source.url, target.url)
      } else await server.restart()
      await compare()
      untilKill = txns
      killing = undefined
    }
    const onTry = (): boolean => {
      if (--untilKill <= 0 && killing === undefined) {
        if (killsLeft === 0) return false
        killsLeft--
        killing = kill()
        killing.catch(() => {}) // Awaited below.
      }
      return true
    }
    await Promise.all(Array.from({ length: WRITERS }, () => write(from, random.fork(), onTry)))
    await killing
    await from.put(LAST, 'the end')
    while ((await to.get(LAST)) === undefined) await new Promise((resolve) => setTimeout(resolve, POLL_MS))
    const pairs = await from.count({ prefix: PREFIX })
    expect(await runProgram(MIRROR, ['compare', source.url, target.url, PREFIX])).toMatchObject({
      ...{ code: 0, stderr: '' },
      stdout: expect.stringMatching(new RegExp(`^at \\d+ the source has ${pairs} pairs; 0 differ in the copy\n$`)),
    })
    expect(await to.count({ prefix: 'other/' })).toBe(0)
    expect(await end(mirror, 'SIGTERM')).toBe(0)
    await to.put(LAST, 'another end')
    expect(await runProgram(MIRROR, ['compare', source.url, target.url, PREFIX])).toMatchObject({
      ...{ code: 1, stderr: '' },
      stdout: expect.stringMatching(/; 1 differ in the copy\n {2}user\/last\n$/),
    })
    report({ test: 'mirror', seed, ...counts, source: source.lives, target: target.lives, pairs })
    for (const db of [from, to]) await db.close()
    for (const server of servers) await server.end()
  }))

test('says in one line what is wrong', async () => {
  const cases = [
    { args: ['http://127.0.0.1:9', 'http://127.0.0.1:9'], code: 2, line: 'give the URL of the source, ' },
    { args: ['http://127.0.0.1:9', 'http://127.0.0.1:9', ''], code: 2, line: 'a mirror of "" would be one of its own' },
    { args: ['nowhere', 'http://127.0.0.1:9', 'a/'], code: 2, line: '"nowhere" is not a URL' },
    { args: ['compare', 'http://127.0.0.1:9', 'http://127.0.0.1:9', 'a/'], code: 1, line: 'no server was reached at ' },
  ]
  for (const { args, code, line } of cases) {
    const result = await runProgram(MIRROR, args)
    expect([result.code, result.stderr.trimEnd().split('\n').length], args.join(' ')).toEqual([code, 1])
    expect(result.stderr.startsWith(`mirror.mjs: ${line}`), result.stderr).toBe(true)
  }
})
