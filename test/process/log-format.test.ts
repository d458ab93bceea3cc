import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fstatSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { CLI, ENV, withTempDir } from './server-process.js'

/** @returns all that a server writes to stdout, a file, until it is told to end. */
async function output(directory: string, flags: string[], envOf: (stdout: number) => object): Promise<string[]> {
  const path = join(directory, 'log')
  const stdout = openSync(path, 'w')
  const args = [CLI, 'serve', '--port', '0', '--data', join(directory, 'db'), ...flags]
  const env = { ...ENV, ...envOf(stdout) }
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', stdout, 'inherit'] })
  const ended = once(child, 'exit')
  await expect.poll(() => readFileSync(path, 'utf8')).toMatch(/ready on/)
  child.kill('SIGTERM')
  await ended
  return readFileSync(path, 'utf8').trimEnd().split('\n')
}

const journalOf = (stdout: number) => {
  const { dev, ino } = fstatSync(stdout)
  return { JOURNAL_STREAM: `${dev}:${ino}` }
}

test.each<[string, string[], (stdout: number) => object]>([
  ['by default', [], () => ({})],
  ['beside a journal', [], () => ({ JOURNAL_STREAM: '8:1' })],
  ['for a journal, where JSON is asked for', ['--log-format', 'json'], journalOf],
  ['at level silent', ['--log-level', 'silent'], () => ({})],
])('each line of stdout is JSON, that of the start too, %s', (_, flags, env) =>
  withTempDir(async (directory) => {
    const lines = (await output(directory, flags, env)).map((line): Record<string, unknown> => JSON.parse(line))
    const url = expect.stringMatching(/^http:/)
    expect(lines[0]).toMatchObject({ level: 'info', url, msg: expect.stringMatching(/^PerKV .* is ready on http:/) })
    for (const { time } of lines) expect(String(time)).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/)
    expect(lines.length > 1).toBe(!flags.includes('silent'))
  }),
)

test.each<[string, string[], (stdout: number) => object]>([
  ['for a journal', [], journalOf],
  ['by flag', ['--log-format', 'text'], () => ({})],
  ['by variable', [], () => ({ PERKV_LOG_FORMAT: 'text' })],
])('the log is text %s', (_, flags, env) =>
  withTempDir(async (directory) => {
    const [ready, ...lines] = await output(directory, flags, env)
    expect(ready).toMatch(
      /^PerKV .* is ready on http:\S+, data in \S+. Console: http:\S+, reference: http:\S+. Try: curl /,
    )
    expect(lines.at(-1)).toMatch(/^\S+Z info {2}stopped durationMs=\d+$/)
  }),
)
