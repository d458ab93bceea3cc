import { expect, test } from 'vitest'
import { KvError } from '../../src/errors/kv-error.js'
import { type Check, requireChecks } from '../../src/txn/check.js'
import { utf8 } from '../store/support.js'

const key = utf8('k')
const found = { value: utf8('v'), commitTs: 7 }

function outcome(check: Omit<Check, 'key'>, version: typeof found | undefined): string {
  try {
    requireChecks([{ key, ...check }], () => version)
    return 'holds'
  } catch (error) {
    if (error instanceof KvError) return error.code
    throw error
  }
}

const cases: readonly [name: string, check: Omit<Check, 'key'>, present: boolean, absent: boolean][] = [
  ['nothing', {}, true, true],
  ['exists', { exists: true }, true, false],
  ['does not exist', { exists: false }, false, true],
  ['the value', { value: utf8('v') }, true, false],
  ['another value', { value: utf8('w') }, false, false],
  ['an empty value', { value: utf8('') }, false, false],
  ['its commit_ts', { commitTs: 7 }, true, false],
  ['another commit_ts', { commitTs: 8 }, false, false],
  ['commit_ts 0', { commitTs: 0 }, false, true],
  ['one of several commit_ts', { commitTs: [3, 7] }, true, false],
  ['none of several commit_ts', { commitTs: [] }, false, false],
  ['not its commit_ts', { commitTsNot: [7] }, false, true],
  ['not absent', { commitTsNot: [0] }, true, false],
  ['value and another commit_ts', { value: utf8('v'), commitTs: 8 }, false, false],
]
test.each(cases)('a check of %s', (_, check, present, absent) => {
  const said = (holds: boolean): string => (holds ? 'holds' : 'precondition_failed')
  expect([outcome(check, found), outcome(check, undefined)]).toEqual([said(present), said(absent)])
})

test('every failed check is listed, and the first one describes the error', () => {
  const checks: Check[] = [{ key }, { key: utf8('a'), exists: true }, { key: utf8('b'), commitTs: 1 }]
  expect(() => requireChecks(checks, (of) => (of === checks[2]?.key ? found : undefined))).toThrow(
    expect.objectContaining({
      code: 'precondition_failed',
      fields: {
        key: utf8('a'),
        index: 1,
        commitTs: 0,
        failedChecks: [
          { index: 1, key: utf8('a'), exists: false, commitTs: 0 },
          { index: 2, key: utf8('b'), exists: true, commitTs: 7 },
        ],
      },
    }),
  )
})
