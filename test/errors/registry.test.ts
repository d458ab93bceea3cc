import { expect, test } from 'vitest'
import { ERRORS, type ErrorRow } from '../../src/errors/registry.js'

const rows: readonly (readonly [code: string, row: ErrorRow])[] = Object.entries(ERRORS)

/** docs/errors.md promises it by the status, so that a program need not know every code. */
test('problems with status 409, 412, 423 and 504 say whether they are retryable, and no others', () => {
  for (const [code, { status, retryable }] of rows)
    expect(retryable !== undefined, code).toBe([409, 412, 423, 504].includes(status))
})
