import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Latches } from '../../src/store/latches.js'
import { deferred, turn, watch } from './support.js'

/** A hold that lasts until the test ends it, and says when it began. */
function holdOf(latches: Latches, log: string[], name: string, keys: readonly string[]) {
  const end = deferred()
  const hold = latches.hold(keys, async () => {
    log.push(name)
    await end.promise
    return name
  })
  return { end, hold: watch(hold) }
}

test('one key: holders run alone, in order of arrival', async () => {
  const latches = new Latches()
  const log: string[] = []
  const holders = ['first', 'second', 'third'].map((name) => holdOf(latches, log, name, ['k']))
  for (const [i, { end, hold }] of holders.entries()) {
    await turn()
    expect(log).toEqual(['first', 'second', 'third'].slice(0, i + 1))
    end.resolve()
    expect(await hold.promise).toBe(log[i])
  }
})

test('different keys do not wait for each other', async () => {
  const latches = new Latches()
  const log: string[] = []
  const held = ['a', 'b', 'c'].map((key) => holdOf(latches, log, key, [key]))
  await turn()
  expect(log).toEqual(['a', 'b', 'c'])
  for (const { end } of held) end.resolve()
})

test('a holder of several keys waits for all of them, and holds its place in each queue meanwhile', async () => {
  const latches = new Latches()
  const log: string[] = []
  const a = holdOf(latches, log, 'a', ['a'])
  const b = holdOf(latches, log, 'b', ['b'])
  const both = holdOf(latches, log, 'both', ['a', 'b'])
  const late = holdOf(latches, log, 'late', ['b'])
  a.end.resolve()
  await turn()
  expect(log).toEqual(['a', 'b'])
  b.end.resolve()
  await turn()
  expect(log).toEqual(['a', 'b', 'both']) // `late` wants only `b`, but came after.
  both.end.resolve()
  await turn()
  expect(log).toEqual(['a', 'b', 'both', 'late'])
  late.end.resolve()
})

test('keys in opposite order do not deadlock', async () => {
  const latches = new Latches()
  const seen: string[] = []
  await Promise.all([
    latches.hold(['a', 'b'], async () => void seen.push('ab')),
    latches.hold(['b', 'a'], async () => void seen.push('ba')),
    latches.hold(['b', 'c', 'a'], async () => void seen.push('bca')),
  ])
  expect(seen).toEqual(['ab', 'ba', 'bca'])
})

test('a body that throws, at once or later, releases its keys and fails alone', async () => {
  const latches = new Latches()
  const sync = latches.hold(['k'], () => {
    throw new Error('at once')
  })
  const later = latches.hold(['k'], async () => {
    await turn()
    throw new Error('later')
  })
  const fine = latches.hold(['k'], async () => 'fine')
  await expect(sync).rejects.toThrow('at once')
  await expect(later).rejects.toThrow('later')
  expect(await fine).toBe('fine')
})

test('no keys: nothing to wait for', async () => {
  expect(await new Latches().hold([], async () => 1)).toBe(1)
})

test('take: all of the free keys at once, or none of them', async () => {
  const latches = new Latches()
  expect(latches.take(['a', 'b'])).toBe(true)
  expect(latches.take(['c', 'b'])).toBe(false)
  expect(latches.isFree('c')).toBe(true)
  const log: string[] = []
  const waiting = holdOf(latches, log, 'waiting', ['b'])
  await turn()
  expect(log).toEqual([])
  latches.release(['a', 'b'])
  expect(latches.take(['b'])).toBe(false) // `waiting` came first.
  await turn()
  expect(log).toEqual(['waiting'])
  waiting.end.resolve()
  await waiting.hold.promise
  expect(latches.take(['a', 'b'])).toBe(true)
})

test('take: shared with others that only read, unless a writer waits', async () => {
  const latches = new Latches()
  expect(latches.take(['a'], ['k'])).toBe(true)
  expect(latches.take(['b'], ['k'])).toBe(true)
  expect(latches.take(['k'])).toBe(false)
  const log: string[] = []
  const writer = holdOf(latches, log, 'writer', ['k'])
  expect(latches.take(['c'], ['k'])).toBe(false)
  expect(latches.isFree('c')).toBe(true)
  latches.release(['a'], ['k'])
  await turn()
  expect(log).toEqual([])
  latches.release(['b'], ['k'])
  await turn()
  expect(log).toEqual(['writer'])
  writer.end.resolve()
})

test('property: any set of holds ends; no two holders of a key overlap; each key is served in order of arrival', async () => {
  const keysOf = fc.uniqueArray(fc.constantFrom('a', 'b', 'c', 'd'), { minLength: 1, maxLength: 4 })
  const hold = fc.record({ keys: keysOf, turns: fc.nat(3), fails: fc.boolean(), arrivesLater: fc.boolean() })
  await fc.assert(
    fc.asyncProperty(fc.array(hold, { maxLength: 20 }), async (holds) => {
      const latches = new Latches()
      const holders = new Map<string, number>()
      const served = new Map<string, number[]>()
      const all: Promise<unknown>[] = []
      for (const [id, { keys, turns, fails, arrivesLater }] of holds.entries()) {
        if (arrivesLater) await Promise.resolve()
        const held = latches.hold(keys, async () => {
          for (const key of keys) {
            expect(holders.has(key)).toBe(false)
            holders.set(key, id)
            served.set(key, [...(served.get(key) ?? []), id])
          }
          for (let i = 0; i < turns; i++) await Promise.resolve()
          for (const key of keys) holders.delete(key)
          if (fails) throw new Error('on purpose')
        })
        all.push(held.catch((error: unknown) => expect(String(error)).toContain('on purpose')))
      }
      await Promise.all(all)
      for (const ids of served.values()) expect(ids).toEqual([...ids].sort((a, b) => a - b))
    }),
  )
})
