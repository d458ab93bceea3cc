import { expect, test } from 'vitest'
import type { WriteInfo } from '../../src/console/answers.js'
import { versionAt, versionNow } from '../../src/console/version-at.js'

const write = (type: WriteInfo['type'], commit_ts: number, more: Partial<WriteInfo> = {}): WriteInfo => ({
  ...{ type, commit_ts, start_ts: commit_ts - 1, ...more },
})
const history = {
  writes: [
    write('rollback', 60),
    write('put', 50, { short_value: 'third', expire_ts: 70 }),
    write('delete', 40),
    write('lock', 30),
    write('put', 20, { lease_fence: 5 }),
    write('put', 10, { short_value: 'first' }),
  ],
  values: [{ start_ts: 19, value: 'second' }],
}

test.each([
  [9, undefined],
  [10, 'first'],
  [39, 'second'],
  [40, undefined],
  [69, 'third'],
  [70, undefined],
])('a read at %i sees %s', (ts, value) => expect(versionAt(history, ts)?.value).toBe(value))

test('the present version is the newest until the server says that its expiry has passed', () => {
  expect(versionNow(history, 45)).toEqual({ value: 'third', commitTs: 50, expireTs: 70, leaseFence: undefined })
  expect(versionNow(history, 70)).toBeUndefined()
})
