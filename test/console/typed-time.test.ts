import { expect, test } from 'vitest'
import { typedTime } from '../../src/console/typed-time.js'

const PER_MS = 2048
const local = (text: string): number => new Date(text).getTime()
const NOW_MS = local('2026-11-28T13:40:05.250')
const NOW = NOW_MS * PER_MS + 17
const msIn = (text: string, safePoint = 0): number | undefined => {
  const ts = typedTime(text, NOW, safePoint)
  return ts === undefined ? undefined : Math.floor(ts / PER_MS)
}

test.each([
  ['10 min ago', NOW_MS - 600_000],
  ['1.5h', NOW_MS - 5_400_000],
  [' 90 Seconds ago ', NOW_MS - 90_000],
  ['2 d ago', NOW_MS - 172_800_000],
  ['13:40', local('2026-11-28T13:40')],
  ['9:05:01.5', local('2026-11-28T09:05:01.500')],
  ['13:41', local('2026-11-27T13:41')],
  ['2026-11-28', local('2026-11-28T00:00')],
  ['2026-11-28 13:40:05.123', local('2026-11-28T13:40:05.123')],
  ['2026-11-28T10:00:00Z', Date.UTC(2026, 10, 28, 10)],
  ['2026-11-27T10:00:00.5+02:00', Date.UTC(2026, 10, 27, 8, 0, 0, 500)],
  ['1764000000', 1_764_000_000_000],
  ['1764000000123', 1_764_000_000_123],
])('%s', (text, ms) => expect(msIn(text)).toBe(ms))

test('the clock shows the same time a day before, also where that day had 25 hours', () => {
  const zone = process.env['TZ']
  process.env['TZ'] = 'Europe/Berlin'
  try {
    const noon = Date.UTC(2026, 9, 25, 11)
    expect(typedTime('12:30', noon * PER_MS, 0)).toBe(Date.UTC(2026, 9, 24, 10, 30) * PER_MS + 2047)
  } finally {
    if (zone === undefined) delete process.env['TZ']
    else process.env['TZ'] = zone
  }
})

test('a millisecond includes all its commits, and a timestamp is itself', () => {
  expect(typedTime('2026-11-28 13:40:05', NOW, 0)).toBe(local('2026-11-28T13:40:05') * PER_MS + 2047)
  expect(typedTime(String(NOW - 5000), NOW, 0)).toBe(NOW - 5000)
})

test('now is no timestamp', () => expect([msIn(''), msIn(' now ')]).toEqual([undefined, undefined]))

test.each(['soon', '10 parsecs ago', '25:00', '2026-13-01', '2026-11-28 9:00', '12', 'ago', '-5 min'])(
  '%s is refused',
  (text) => expect(() => msIn(text)).toThrow('Type a time such as'),
)

test('what is ahead, or before the safe point, is told', () => {
  expect(() => msIn('2026-11-28 13:40:06')).toThrow('ahead')
  const safePoint = (NOW_MS - 60_000) * PER_MS
  expect(() => msIn('2 min ago', safePoint)).toThrow('before the safe point')
  expect(msIn('1 min ago', safePoint)).toBe(NOW_MS - 60_000)
})
