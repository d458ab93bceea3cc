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
  expect(logged({ err })).toMatchObject({ level: 'error', msg: 'something failed', err: { type: expect.any(String) } })
})

test('an error that is its own cause', () => {
  const err = new Error('round')
  err.cause = err
  expect(JSON.stringify(logged({ err })).length).toBeLessThan(20_000)
})

test('a line has its level by name, an ISO time, and nothing that a terminal obeys or that begins another line', () => {
  const lines: string[] = []
  createLog('info', (line) => lines.push(line)).warn({ text: 'a\nb\u009b31m\u2028\u202e' }, 'one\r\n{"level":"fatal"}')
  expect(lines[0]).toMatch(/^[\x20-\x7e]+\n$/)
  const line = JSON.parse(lines[0] ?? '') as Record<string, string>
  expect(line).toMatchObject({ level: 'warn', text: 'a\nb\u009b31m\u2028\u202e', msg: 'one\r\n{"level":"fatal"}' })
  expect(new Date(line['time'] ?? '').toISOString()).toBe(line['time'])
})

test.each([
  ['a text', { text: '\u{1f600}'.repeat(20_000) }],
  ['a list', { list: new Array(20_000).fill('x') }],
  ['many facts', Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`fact${i}`, i]))],
])('a line that %s makes too long is cut, and says so', (_, facts) => {
  const line = logged(facts)
  expect(line).toMatchObject({ level: 'error', cut: true, msg: 'something failed' })
  expect(JSON.stringify(line).length).toBeLessThan(16_384)
})

test('a long message is whole while the line is short enough', () => {
  const lines: string[] = []
  const log = createLog('info', (line) => lines.push(line))
  log.warn('a'.repeat(2000))
  log.warn('a'.repeat(20_000))
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { msg: 'a'.repeat(2000) },
    { cut: true, msg: 'a'.repeat(1024) },
  ])
  expect(JSON.parse(lines[0] ?? '')).not.toHaveProperty('cut')
})

test('facts that are no JSON are left out', () => {
  expect(logged({ count: 1n })).toMatchObject({ level: 'error', msg: 'something failed' })
})
