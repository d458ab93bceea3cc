import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, test } from 'vitest'
import { killAll, withTempDir } from '../process/server-process.js'
import { type DocumentRun, type Printed, runDocument } from './run-document.js'

/**
 * Every `console` block of README.md and docs/ does what it shows. With PERKV_DOCS_WRITE=1 the documents are given what is printed, where
 * that is something else.
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const ONLY = process.env['PERKV_DOCS_ONLY'] ?? ''
const DOCUMENTS = [
  'README.md',
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' }).map((name) => `docs/${name}`),
]
  .filter((name) => name.endsWith('.md') && name.includes(ONLY))
  .filter((name) => /^```console$/m.test(readFileSync(join(ROOT, name), 'utf8')))
  .sort()

const missing = ['bash', 'curl', 'jq'].filter((program) => {
  try {
    execFileSync(program, ['--version'], { stdio: 'ignore' })
    return false
  } catch {
    return true
  }
})
if (missing.length > 0)
  console.warn(`SKIPPED: the console blocks of the documents, because ${missing.join(' and ')} is missing`)

describe.skipIf(missing.length > 0)('console blocks', () => {
  const runs = new Map<string, DocumentRun>()

  afterAll(() => {
    killAll() // Nothing is left of documents that ran to their end.
    const commands = [...runs.values()].reduce((sum, { printed }) => sum + printed.length, 0)
    const excluded = [...runs].flatMap(([name, run]) =>
      run.excluded.map(({ line, reason }) => `  ${name}:${line}: ${reason}`),
    )
    console.info(
      [`${commands} commands of ${runs.size} documents ran; blocks that did not: ${excluded.length}`, ...excluded].join(
        '\n',
      ),
    )
  })

  test.concurrent.each(DOCUMENTS)('%s', { timeout: 240_000 }, async (name) => {
    const text = readFileSync(join(ROOT, name), 'utf8')
    const run = await withTempDir((directory) => runDocument(text, directory))
    runs.set(name, run)
    if (process.env['PERKV_DOCS_WRITE']) writeFileSync(join(ROOT, name), rewritten(text, run.printed))
    else
      expect(transcript(name, run.printed, ({ actual }) => actual)).toBe(
        transcript(name, run.printed, ({ command }) => command.shown),
      )
  })
})

function transcript(name: string, printed: readonly Printed[], linesOf: (one: Printed) => readonly string[]): string {
  return printed.flatMap((one) => [`${name}:${one.command.line} $ ${one.command.command}`, ...linesOf(one)]).join('\n')
}

/** The document with what is printed in place of what it shows. */
function rewritten(text: string, printed: readonly Printed[]): string {
  const lines = text.split('\n')
  for (const { command, actual } of printed.toReversed()) lines.splice(command.shownAt, command.shown.length, ...actual)
  return lines.join('\n')
}
