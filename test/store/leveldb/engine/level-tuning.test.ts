import { expect, test } from 'vitest'
import type { LevelTuning } from '../../../../src/store/leveldb/engine/level-engine.js'
import { checkDirectory } from '../../../../src/store/leveldb/integrity/check-directory.js'
import { prewriteOf, put, testStores, text } from '../../support.js'

const stores = testStores()

const KEYS = 1000
const LONG = 'x'.repeat(300)
const valuesOf = (round: number): string[] =>
  Array.from({ length: KEYS }, (_, i) => `${i} in ${round} ${i % 5 === 0 ? LONG : ''}`)

/** Reads what the round before has left, and writes all keys. @returns bytes on disk. */
async function run(directory: string, tuning: LevelTuning, round = 0): Promise<number> {
  const store = await stores.open({ directory, tuning })
  if (round > 0) {
    const { pairs } = await store.scan({ limit: KEYS, ts: await store.tso(1) })
    expect(pairs.map(({ value }) => value && text(value))).toEqual(valuesOf(round - 1))
  }
  const mutations = valuesOf(round).map((value, i) => put(`key${String(i).padStart(5, '0')}`, value))
  await store.prewrite(prewriteOf(await store.tso(1), mutations, { tryOnePc: true }))
  await store.files.compact({})
  const bytes = await store.files.bytes()
  await store.close()
  const findings: string[] = []
  const { isSound } = await checkDirectory(directory, { onFinding: ({ message }) => void findings.push(message) })
  expect([isSound, findings]).toEqual([true, []])
  return bytes
}

const TUNINGS: readonly LevelTuning[] = [
  {},
  { compression: 'none', blockCacheBytes: 0 },
  { compression: 'snappy', blockCacheBytes: 2 ** 30 },
]

test.each(TUNINGS)('what was written with %o is read with any other', { tags: ['long'] }, async (tuning) => {
  const directory = await stores.directory()
  let round = 0
  for (const other of TUNINGS) {
    await run(directory, tuning, round++)
    await run(directory, other, round++)
  }
})

test('compression makes tables smaller', { tags: ['long'] }, async () => {
  const none = await run(await stores.directory(), { compression: 'none' })
  expect(await run(await stores.directory(), {})).toBeLessThan(none / 2)
})
