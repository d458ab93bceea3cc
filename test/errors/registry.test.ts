import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { ERRORS, type ErrorRow } from '../../src/errors/registry.js'

const rows: readonly (readonly [code: string, row: ErrorRow])[] = Object.entries(ERRORS)

test('docs/errors.md has a line per code, with its status', async () => {
  const docs = await readFile(new URL('../../docs/errors.md', import.meta.url), 'utf8')
  const lines = [...docs.matchAll(/^\| `(\w+)`[^|]*\| (\d+) +\|/gm)].map(([, code, status]) => `${code} ${status}`)
  const wanted = rows.map(([code, { status }]) => `${code} ${status}`)
  expect([...new Set(lines)].sort()).toEqual(wanted.sort())
})

/** docs/errors.md promises it by the status, so that a program need not know every code. */
test('problems with status 409, 412, 423 and 504 say whether they are retryable, and no others', () => {
  for (const [code, { status, retryable }] of rows)
    expect(retryable !== undefined, code).toBe([409, 412, 423, 504].includes(status))
})
