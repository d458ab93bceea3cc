import { beforeEach, expect } from 'vitest'
import { invalid } from '../../../src/errors/kv-error.js'
import type { ValuedPair } from '../../../src/percolator/api.js'
import type { CompleteStore } from '../../../src/store/store.js'
import { codeOf, del, failureOf, put, read, TestClock, utf8, write } from '../support.js'
import { LONG } from './contents.js'
import type { Contract } from './contract.js'

const SOURCE = { id: 'ab'.repeat(16), ts: new TestClock().ts() }

const pair = (key: string, value: string, commitTs = 50): ValuedPair => ({
  key: utf8(key),
  value: utf8(value),
  commitTs,
})

async function* blocks(...all: readonly (readonly ValuedPair[])[]): AsyncGenerator<readonly ValuedPair[]> {
  yield* all
}
async function* cutOff(...all: readonly (readonly ValuedPair[])[]): AsyncGenerator<readonly ValuedPair[]> {
  yield* all
  throw invalid('body', 'it was cut off')
}

/** A backup that fills an empty store. */
export function restoreCases(contract: Contract): void {
  const { open, needing } = contract
  let store: CompleteStore
  beforeEach(async () => {
    store = await open({ now: new TestClock().now })
  })

  needing('restore')('pairs come back as they were, and what began before is refused', async () => {
    const before = await store.tso(1)
    const progress = await store.upkeep.restore(
      SOURCE,
      blocks([pair('a', '1', 40), pair('b', LONG)], [pair('c', '')]),
      false,
    )
    expect(progress).toMatchObject({ ...SOURCE, pairs: 3, bytes: LONG.length + 4 })
    expect(store.upkeep.restoring).toBeUndefined()
    expect(await store.get({ key: utf8('a') })).toEqual({ found: true, value: utf8('1'), commitTs: 40 })
    expect([await read(store, 'b'), await read(store, 'c')]).toEqual([LONG, ''])
    expect(await codeOf(read(store, 'a', before))).toBe('ts_below_safe_point')
    const ts = await store.tso(2)
    expect(ts).toBeGreaterThan(SOURCE.ts)
    await write(store, ts - 1, ts, [put('a', 'new')])
    expect(await read(store, 'a')).toBe('new')
  })

  needing('restore')('a store that is not empty is left as it is', async () => {
    await write(store, 5, 6, [put('a', 'mine')])
    expect(await codeOf(store.upkeep.restore(SOURCE, blocks([pair('b', '1')]), false))).toBe('precondition_failed')
    expect([await read(store, 'a', 10), await read(store, 'b', 10)]).toEqual(['mine', undefined])
    const refusal = async () => failureOf(store.upkeep.restore(SOURCE, blocks(), false))
    expect(await refusal()).toMatchObject({ fields: { key: utf8('a'), commitTs: 6 } })
    await write(store, 7, 8, [del('a')])
    expect(await refusal()).toMatchObject({ fields: { key: utf8('a'), commitTs: 0 } })
  })

  needing('restore')('one that was cut off refuses all else until it is continued', async () => {
    expect(await codeOf(store.upkeep.restore(SOURCE, cutOff([pair('a', '1')], [pair('b', '2')]), false))).toBe(
      'invalid_argument',
    )
    expect(store.upkeep.restoring).toMatchObject({ ...SOURCE, lastKey: utf8('b'), pairs: 2 })
    expect(store.upkeep.probe()).toBe(false)
    expect(await codeOf(read(store, 'a'))).toBe('storage_unavailable')
    const other = { id: 'cd'.repeat(16), ts: SOURCE.ts }
    expect(await codeOf(store.upkeep.restore(other, blocks([pair('x', '1')]), false))).toBe('precondition_failed')
    const whole = blocks([pair('a', '1'), pair('b', '2')], [pair('c', '3')])
    expect(await store.upkeep.restore(SOURCE, whole, false)).toMatchObject({ pairs: 3 })
    expect([await read(store, 'a'), await read(store, 'b'), await read(store, 'c')]).toEqual(['1', '2', '3'])
  })

  needing('restore')('anew: what another one left is removed', async () => {
    expect(await codeOf(store.upkeep.restore(SOURCE, cutOff([pair('a', LONG)]), false))).toBe('invalid_argument')
    const other = { id: 'cd'.repeat(16), ts: SOURCE.ts }
    await store.upkeep.restore(other, blocks([pair('b', '2')]), true)
    expect([await read(store, 'a'), await read(store, 'b')]).toEqual([undefined, '2'])
  })

  needing('restore', 'places')('one that was cut off stays so over a restart', async () => {
    const place = await contract.place()
    const first = await open({ place })
    expect(await codeOf(first.upkeep.restore(SOURCE, cutOff([pair('a', '1')]), false))).toBe('invalid_argument')
    await first.close()
    const second = await open({ place })
    expect(second.upkeep.restoring).toMatchObject({ ...SOURCE, pairs: 1 })
    await second.upkeep.restore(SOURCE, blocks([pair('a', '1')], [pair('b', '2')]), false)
    expect([await read(second, 'a'), await read(second, 'b')]).toEqual(['1', '2'])
  })
}
