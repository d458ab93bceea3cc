import { beforeEach, expect } from 'vitest'
import type { KeyRange } from '../../../src/bytes/key-range.js'
import type { Store } from '../../../src/store/store.js'
import { codeOf, del, failureOf, prewriteOf, put, read, START_MS, utf8, write } from '../support.js'
import type { Contract } from './contract.js'

const range = (start?: string, end?: string): KeyRange => ({
  start: start === undefined ? undefined : utf8(start),
  end: end === undefined ? undefined : utf8(end),
})

/** Whether what a serializable transaction read is still so at its commit timestamp. */
export function validationCases({ open, test, needing }: Contract): void {
  let store: Store
  beforeEach(async () => {
    store = await open({ now: () => START_MS })
  })
  /** Of reads made at 10, at a commit_ts of 100. */
  const validate = (keys: readonly string[], ranges: readonly KeyRange[] = []): Promise<void> =>
    store.validateReads({ startTs: 10, commitTs: 100, keys: keys.map(utf8), ranges })
  /** The key by itself and by a range must be judged alike. */
  const judge = async (key: string): Promise<string> => {
    const code = await codeOf(validate([key]))
    expect(await codeOf(validate([], [range('A', 'B'), range(key, `${key}!`)]))).toBe(code)
    return code
  }

  test('valid: absent, old, deleted before, rolled back, only locked, or changed later', async () => {
    expect(await judge('absent')).toBe('none')
    await write(store, 5, 6, [put('k'), put('deleted')])
    await write(store, 7, 8, [del('deleted')])
    await store.rollback({ keys: [utf8('k')], startTs: 30 })
    await write(store, 40, 41, [{ op: 'lock', key: utf8('k') }])
    await write(store, 150, 151, [put('k')])
    expect([await judge('k'), await judge('deleted')]).toEqual(['none', 'none'])
  })

  test('changed, deleted or inserted since, up to the commit_ts', async () => {
    await write(store, 2, 3, [put('changed'), put('deleted')])
    await write(store, 5, 11, [put('changed')])
    await write(store, 20, 21, [del('deleted')])
    await write(store, 20, 100, [put('inserted')])
    for (const key of ['changed', 'deleted', 'inserted']) expect(await judge(key)).toBe('write_conflict')
    expect(await failureOf(validate(['inserted']))).toMatchObject({
      fields: {
        key: utf8('inserted'),
        startTs: 10,
        conflictStartTs: 20,
        conflictCommitTs: 100,
        reason: 'serializable_read',
      },
    })
  })

  test('an older lock is a conflict, a younger one is in the way, and those that cannot commit by then are neither', async () => {
    await store.prewrite(prewriteOf(8, [put('older')]))
    await store.prewrite(prewriteOf(50, [put('younger')]))
    await store.prewrite(prewriteOf(200, [put('later')]))
    await store.prewrite(prewriteOf(50, [put('pushed')], { minCommitTs: 101 }))
    await store.prewrite(prewriteOf(10, [put('own')]))
    await store.prewrite(prewriteOf(8, [{ op: 'lock', key: utf8('locked') }]))
    const codes: Record<string, string> = {}
    for (const key of ['older', 'younger', 'later', 'pushed', 'own', 'locked']) codes[key] = await judge(key)
    expect(codes).toEqual({
      older: 'write_conflict',
      younger: 'key_locked',
      later: 'none',
      pushed: 'none',
      own: 'none',
      locked: 'none',
    })
  })

  test('ranges are half open, and open where a bound is absent; inverted ones cover nothing', async () => {
    await write(store, 20, 21, [put('k')])
    for (const covering of [range(), range('k'), range(undefined, 'k\0'), range('a', 'z')])
      expect(await codeOf(validate([], [covering]))).toBe('write_conflict')
    for (const other of [range('k\0'), range(undefined, 'k'), range('z', 'a')])
      expect(await codeOf(validate([], [other]))).toBe('none')
    expect(await codeOf(validate([], [range(undefined, 'k'), range('l'), range('j')]))).toBe('write_conflict')
  })

  needing('onePhaseCommit')('a validation is a read: nobody commits below it afterwards', async () => {
    const commitTs = await store.tso(1)
    await store.validateReads({ startTs: 10, commitTs, keys: [], ranges: [range()] })
    const { onePcCommitTs } = await store.prewrite(prewriteOf(11, [put('k')], { tryOnePc: true }))
    expect(onePcCommitTs).toBeGreaterThan(commitTs)
  })

  needing('onePhaseCommit')('a read beside a 1PC commit that validates shows the same again', async () => {
    for (let turns = 0; turns < 30; turns++) {
      const key = `k${turns}`
      const [startTs, ts] = [await store.tso(1), await store.tso(1)]
      const reads = { keys: [utf8('other')], ranges: [] }
      const writing = store.prewrite(prewriteOf(startTs, [put(key, 'new')], { tryOnePc: true, reads }))
      for (let i = 0; i < turns; i++) await Promise.resolve()
      const seen = await read(store, key, ts)
      await writing
      expect(await read(store, key, ts)).toBe(seen)
    }
  })

  needing('onePhaseCommit')(
    '1PC validates what its transaction read, and writes nothing where that has changed',
    async () => {
      await write(store, 5, 6, [put('x'), put('y')])
      const leave = (key: string, other: string, startTs: number) =>
        store.prewrite(
          prewriteOf(startTs, [put(key, 'off')], { tryOnePc: true, reads: { keys: [utf8(other)], ranges: [] } }),
        )
      await leave('x', 'y', 10)
      const failure = await failureOf(leave('y', 'x', 9))
      expect(failure).toMatchObject({ code: 'write_conflict', fields: { reason: 'serializable_read' } })
      expect(await read(store, 'y')).toBe('value of y')
      expect((await store.scanLock({ maxTs: 100 })).locks).toEqual([])
    },
  )
}
