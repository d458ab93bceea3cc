import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { ENV } from '../process/server-process.js'

/** The example of docs/embedded.md as a user runs it, and the programs in its text and that of docs/level.md. */

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const NOTES = join(ROOT, 'docs/examples/embedded/notes.mjs')

interface Run {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

let directory: string

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'perkv-embedded-example-'))
})
afterEach(() => rm(directory, { recursive: true, force: true }))

function run(args: readonly string[]): Promise<Run> {
  return new Promise((resolve, reject) => {
    const env = { ...ENV, NOTES: join(directory, 'notes') }
    execFile(process.execPath, [...args], { env, cwd: ROOT, timeout: 200_000 }, (error, stdout, stderr) => {
      if (error === null) resolve({ code: 0, stdout, stderr })
      else if (typeof error.code === 'number') resolve({ code: error.code, stdout, stderr })
      else reject(error)
    })
  })
}

test('notes.mjs: notes and their index change together', async () => {
  const notes = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await run([NOTES, ...args])
    expect({ code, stderr }, args.join(' ')).toEqual({ code: 0, stderr: '' })
    return stdout
  }
  expect(await notes('add', 'buy', 'milk', '#home', '#today')).toBe('1\n')
  expect(await notes('add', 'call Zoë #today')).toBe('2\n')
  expect(await notes('add', 'sleep')).toBe('3\n')
  expect(await notes('list')).toBe('1 buy milk #home #today\n2 call Zoë #today\n3 sleep\n')
  expect(await notes('list', '#home')).toBe('1 buy milk #home #today\n')
  expect(await notes('retag', '#today', '#tomorrow')).toBe('2 changed\n')
  expect(await notes('list', '#tomorrow')).toBe('1 buy milk #home #tomorrow\n2 call Zoë #tomorrow\n')
  expect(await notes('list', '#today')).toBe('')
  expect(await notes('remove', '1')).toBe('')
  expect(await notes('check')).toBe('2 notes, 1 tags: the index is right\n')
  const refused: readonly (readonly [number, string, readonly string[]])[] = [
    [1, 'no note has #nothing', ['retag', '#nothing', '#x']],
    [1, 'there is no note 1', ['remove', '1']],
    [2, 'the number is missing, or is none: x', ['remove', 'x']],
    [2, 'there is no command "lst": add, list, retag, remove, check', ['lst']],
  ]
  for (const [code, says, args] of refused)
    expect(await run([NOTES, ...args])).toEqual({ code, stdout: '', stderr: `notes.mjs: ${says}\n` })
})

describe.each([
  { file: 'docs/embedded.md', programsMin: 2 },
  { file: 'docs/level.md', programsMin: 1 },
])('$file', async ({ file, programsMin }) => {
  const text = await readFile(join(ROOT, file), 'utf8')
  const programs = [...text.matchAll(/^```js\n(.*?)^```/gms)].map(([, program = '']) => program)

  test('has programs', () => expect(programs.length).toBeGreaterThanOrEqual(programsMin))

  test.each(
    programs.map((program, i) => ({ program, name: `${i + 1}: ${program.split('\n').find((line) => line !== '')}` })),
  )('program $name', async ({ program }) => {
    const source = program.replaceAll(/open\('[^']*'/g, `open('${join(directory, 'data')}'`)
    const { code, stdout, stderr } = await run(['--input-type=module', '--eval', source])
    expect({ code, stderr }, source).toEqual({ code: 0, stderr: '' })
    const wanted = [...program.matchAll(/\/\/ -> (.*)$/gm)].map(([, line]) => line)
    expect(stdout.split('\n').filter((line) => wanted.includes(line))).toEqual(wanted)
  })
})
