import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Db } from '../../src/client/db.js'
import { onAbort } from '../../src/event-loop/on-abort.js'
import { BACKENDS, testDbs } from './backends.js'

const CALLS = 12

/** The warnings of Node: from the eleventh listener of one signal on it takes them for a leak. */
const warnings: Error[] = []
const note = (warning: Error): void => void warnings.push(warning)
beforeEach(() => {
  warnings.length = 0
  process.on('warning', note)
})
afterEach(() => void process.off('warning', note))

async function drain(items: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of items);
}

const WAITING: readonly (readonly [string, (db: Db, signal: AbortSignal) => Promise<unknown>])[] = [
  ['changes', (db, signal) => drain(db.changes({ signal }))],
  ['watch', (db, signal) => drain(db.watch('k', { signal }))],
  ['lease', (db, signal) => db.lease('held', { signal, ttlMs: 10_000, waitMs: 60_000 })],
  ['claim', (db, signal) => db.observers.claim('o', { signal, waitMs: 60_000 })],
  ['put', (db, signal) => db.put('locked', 'v', { signal })],
  ['put with a deadline', (db, signal) => db.put('locked', 'v', { signal, timeoutMs: 50_000 })],
  ['transaction', (db, signal) => db.transaction((txn) => txn.put('locked', 'v'), { signal, mode: 'pessimistic' })],
  ['observe', (db, signal) => db.observe('o', { prefix: 'o' }, async () => {}, { signal })],
]

describe.each(BACKENDS)('$backend', ({ openDb }) => {
  const open = testDbs(openDb)

  test.each(WAITING)(
    `${CALLS} calls of %s with one signal end with it, and Node sees no leak`,
    { tags: ['long'] },
    async (_, call) => {
      const { db } = await open()
      await db.observers.put('o', { prefix: 'o' })
      const held = await db.lease('held', { ttlMs: 10_000 })
      const holder = await db.begin({ mode: 'pessimistic' })
      await holder.put('locked', '1')
      const stop = new AbortController()
      const calls = Array.from({ length: CALLS }, () => call(db, stop.signal).catch((error: unknown) => error))
      await db.put('k', 'v') // Takes longer than the calls take to listen.
      stop.abort()
      await Promise.all(calls)
      await new Promise(setImmediate)
      expect(warnings).toEqual([])
      await holder.rollback()
      await held.release()
    },
  )
})

test('a signal that many wait for has one listener, and none when nobody waits any more', () => {
  const stop = new AbortController()
  const seen: number[] = []
  let listeners = 0
  const { addEventListener, removeEventListener } = stop.signal
  Object.assign(stop.signal, {
    addEventListener: (...args: Parameters<typeof addEventListener>) => {
      listeners++
      addEventListener.apply(stop.signal, args)
    },
    removeEventListener: (...args: Parameters<typeof removeEventListener>) => {
      listeners--
      removeEventListener.apply(stop.signal, args)
    },
  })
  const ends = [1, 2, 3].map((n) => onAbort(stop.signal, () => seen.push(n)))
  expect(listeners).toBe(1)
  for (const end of [...ends, ...ends]) end()
  expect(listeners).toBe(0)
  const first = onAbort(stop.signal, () => {
    seen.push(4)
    second()
  })
  const second = onAbort(stop.signal, () => seen.push(5))
  onAbort(stop.signal, () => seen.push(6))
  stop.abort()
  expect(seen).toEqual([4, 6])
  expect(listeners).toBe(0)
  first()
})
