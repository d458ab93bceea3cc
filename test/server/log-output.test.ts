import { expect, test } from 'vitest'
import { readableLine } from '../../src/server/log-output.js'

test('a line for people has the time, the level, the message, and in JSON what else there is', () => {
  const base = { level: 30, time: new Date(2026, 0, 2, 3, 4, 5).getTime(), pid: 1, hostname: 'host' }
  const line = (more: object): string => readableLine(`${JSON.stringify({ ...base, ...more })}\n`)
  expect(line({ port: 7400, msg: 'listening' })).toBe('03:04:05 info  listening {"port":7400}\n')
  expect(line({ level: 60, msg: 'gone' })).toBe('03:04:05 fatal gone\n')
  expect(line({ level: 50, err: { type: 'Error' } })).toBe('03:04:05 error  {"err":{"type":"Error"}}\n')
})
