import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, expect, test } from 'vitest'
import { MortalServer } from '../process/mortal-server.js'
import { ENV, killAll, withTempDir } from '../process/server-process.js'
import { ROOT } from './run-program.js'

/** The programs of docs/tutorial.md as a reader runs them, while a worker and the server are killed. Its console blocks run in test/docs. */

const DIRECTORY = join(ROOT, 'docs/examples/tutorial')

const children: ChildProcess[] = []
afterAll(() => {
  for (const child of children) child.kill('SIGKILL')
  killAll()
})

interface Program {
  readonly child: ChildProcess
  readonly lines: string[]
  readonly closed: Promise<unknown[]>
}

function start(url: string, name: string, ...args: string[]): Program {
  const env = { ...ENV, PERKV_SERVER: url }
  const child = spawn(process.execPath, [join(DIRECTORY, name), ...args], { env, cwd: ROOT, stdio: 'pipe' })
  children.push(child)
  const lines: string[] = []
  for (const output of [child.stdout, child.stderr])
    createInterface({ input: output }).on('line', (line) => lines.push(line))
  return { child, lines, closed: once(child, 'close') }
}

async function run(url: string, name: string, ...args: string[]): Promise<{ code: unknown; lines: string[] }> {
  const { lines, closed } = start(url, name, ...args)
  const [code] = await closed
  return { code, lines }
}

async function untilLine(program: Program, found: (line: string) => boolean): Promise<void> {
  while (!program.lines.some(found)) {
    if (program.child.exitCode !== null) throw new Error(`ended with ${program.lines.join('\n')}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

test('kill -9 of a worker and of the server: no seat is sold twice, each booking has one letter, the screen misses nothing', () =>
  withTempDir(async (directory) => {
    const server = await MortalServer.start(join(directory, 'data'))
    const { url } = server
    expect(await run(url, 'seller.mjs', 'open')).toEqual({ code: 0, lines: ['A ......  B ......  12 free'] })
    const screen = start(url, 'screen.mjs')
    const workers = [start(url, 'letters.mjs'), start(url, 'letters.mjs')] as const
    await Promise.all([screen, ...workers].map((program) => untilLine(program, () => true)))
    const rush = start(url, 'rush.mjs')
    await untilLine(screen, (line) => line.endsWith(' 8 free'))
    workers[0].child.kill('SIGKILL')
    await server.restart()
    const [code] = await rush.closed
    expect({ code, lines: rush.lines }).toEqual({
      code: 0,
      lines: [
        '16 customers at once: 6 have two seats each, 10 have none',
        'no seat is sold twice',
        'each booking has one letter',
      ],
    })
    await untilLine(screen, (line) => line.endsWith(' 0 free'))
    const free = screen.lines.map((line) => Number(/ (\d+) free$/.exec(line)?.[1]))
    expect(free).toEqual([12, 10, 8, 6, 4, 2, 0])
    for (const { child, closed } of [screen, workers[1]]) {
      child.kill('SIGTERM')
      expect(await closed).toEqual([0, null])
    }
    await server.end()
  }))

test('the seller says in one line what is wrong', () =>
  withTempDir(async (directory) => {
    const server = await MortalServer.start(join(directory, 'data'))
    const cases: readonly (readonly [number, string, readonly string[]])[] = [
      [0, 'A ......  B ......  12 free', ['open']],
      [1, 'the seats are on sale already', ['open']],
      [0, 'A ##....  B ......  10 free', ['book', '1', 'Ann', 'A1', 'A2']],
      [0, 'A ##....  B ......  10 free', ['book', '1', 'Ann', 'A1', 'A2']],
      [1, 'refused: order 1 is another booking', ['book', '1', 'Bob', 'A3']],
      [1, 'refused: A2 is taken', ['book', '2', 'Bob', 'A3', 'A2']],
      [1, 'refused: there is no seat C1', ['book', '2', 'Bob', 'C1']],
      [1, 'refused: a single seat would be left over', ['book', '2', 'Bob', 'A4']],
      [1, 'refused: there is no order 2', ['cancel', '2']],
      [0, 'A ......  B ......  12 free', ['cancel', '1']],
      [2, 'seller.mjs: use: open | book ORDER NAME SEAT... | cancel ORDER | plan', ['book', '1', 'Ann']],
    ]
    for (const [code, line, args] of cases)
      expect(await run(server.url, 'seller.mjs', ...args), args.join(' ')).toEqual({ code, lines: [line] })
    await server.end()
  }))

test('the programs in the text are those that run', () => {
  const unindented = (text: string): string => text.replaceAll(/^ +/gm, '')
  const text = readFileSync(join(ROOT, 'docs/tutorial.md'), 'utf8')
  const excerpts = [...text.matchAll(/^```js\n(.*?)^```/gms)].map(([, excerpt = '']) => unindented(excerpt))
  const programs = readdirSync(DIRECTORY).map((name) => unindented(readFileSync(join(DIRECTORY, name), 'utf8')))
  expect(excerpts.length).toBeGreaterThanOrEqual(3)
  for (const excerpt of excerpts)
    expect(
      programs.some((program) => program.includes(excerpt)),
      excerpt,
    ).toBe(true)
})
