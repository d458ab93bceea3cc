import { expect, test } from 'vitest'
import { createLog } from '../../src/server/log.js'

function logged(facts: object): Record<string, unknown> {
  const lines: string[] = []
  createLog('info', (line) => lines.push(line)).error(facts, 'something failed')
  expect(lines).toHaveLength(1)
  return JSON.parse(lines[0] ?? '') as Record<string, unknown>
}

test.each([
  ['an error of the platform, whose code is a number', new DOMException('gone', 'AbortError')],
  ['an error with a code that is no text', Object.assign(new Error('odd'), { code: 7 })],
  ['an error that is no error', 'text'],
])('a line tells of %s', (_, err) => {
  expect(logged({ err })).toMatchObject({ level: 50, msg: 'something failed', err: { type: expect.any(String) } })
})

test('an error that is its own cause', () => {
  const err = new Error('round')
  err.cause = err
  expect(JSON.stringify(logged({ err })).length).toBeLessThan(20_000)
})

test('facts that are no JSON are left out', () => {
  expect(logged({ count: 1n })).toMatchObject({ level: 50, msg: 'something failed' })
})
