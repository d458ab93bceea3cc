import { expect, test } from 'vitest'
import { readableLine } from '../../src/server/log-output.js'

test('a line for people has the time, the level, the message, what else there is, and an error below', () => {
  const base = { level: 'info', time: '2026-01-02T03:04:05.678Z', pid: 1, hostname: 'host' }
  const line = (more: object): string => readableLine(`${JSON.stringify({ ...base, ...more })}\n`)
  expect(line({ port: 7400, place: '/a b', route: '/v1/kv/:key', msg: 'listening' })).toBe(
    '2026-01-02T03:04:05.678Z info  listening port=7400 place="/a b" route=/v1/kv/:key\n',
  )
  expect(line({ level: 'fatal', list: [1], msg: 'a\n\u001b[2J' })).toBe(
    '2026-01-02T03:04:05.678Z fatal a\\u000a\\u001b[2J list=[1]\n',
  )
  const cause = { type: 'TypeError', message: 'two\nlines' }
  expect(
    line({ level: 'error', err: { type: 'Error', code: 'EIO', frames: ['f (a.js:1)'], cause }, msg: 'gone' }),
  ).toBe(
    [
      '2026-01-02T03:04:05.678Z error gone',
      '  Error [EIO]',
      '      at f (a.js:1)',
      '  caused by TypeError: two\\u000alines\n',
    ].join('\n'),
  )
})
