import { expect, test } from 'vitest'
import type { KeyChange } from '../../../../src/percolator/change.js'
import { changeRecords } from '../../../../src/store/leveldb/rows/change-records.js'
import type { Timestamp } from '../../../../src/timestamp.js'
import { TappedEngine, testStores, utf8 } from '../../support.js'

const COUNT = 100_000

const stores = testStores()

/** A log of many changes without their values, which a reading of keys does not look at. */
async function openLogged(count: number, commitTsOf: (i: number, newest: Timestamp) => Timestamp) {
  const tapped = new TappedEngine()
  let readBytes = 0
  const store = await stores.open({
    openEngine: async (directory) => {
      const engine = await tapped.open(directory)
      const iterator: typeof engine.iterator = (range) => {
        const { nextv, close } = engine.iterator(range)
        return {
          close,
          nextv: async (size) => {
            const entries = await nextv(size)
            for (const [, value] of entries) readBytes += value.length
            return entries
          },
        }
      }
      return { ...engine, iterator }
    },
  })
  const newest = await store.tso(count)
  const changes = Array.from({ length: count }, (_, i): KeyChange => {
    return { type: 'put', key: utf8(`key${String(i).padStart(7, '0')}`), commitTs: commitTsOf(i, newest), startTs: 1 }
  })
  await tapped.engine.write(changeRecords(changes), false)
  return { store, newest, readBytes: () => readBytes }
}

for (const [name, commitTsOf] of [
  ['many transactions', (i, newest) => newest - COUNT + i],
  ['one transaction', (_, newest) => newest],
] as const satisfies [string, (i: number, newest: Timestamp) => Timestamp][]) {
  test(`a reader of ${name} that rests keeps a bounded part of the log in memory`, { tags: ['long'] }, async () => {
    const { store, newest, readBytes } = await openLogged(COUNT, commitTsOf)
    const upTo = store.log.resolve()
    expect(upTo).toBeGreaterThanOrEqual(newest)
    const before = readBytes()
    let ahead = 0
    let seen = 0
    for await (const { changes } of store.log.read({ since: newest - COUNT - 1, upTo, keysOnly: true })) {
      const bytes = readBytes() - before
      for (const { key } of changes) if (Number(key.subarray(3).toString()) === seen) seen++
      ahead = Math.max(ahead, bytes - seen * 29) // 29 bytes per change in a record.
    }
    expect(seen).toBe(COUNT)
    expect(ahead).toBeLessThan(1.2 * 1024 * 1024)
  })
}
