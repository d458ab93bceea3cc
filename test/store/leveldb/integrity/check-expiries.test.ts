import { expect, test } from 'vitest'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { sealedEngine } from '../../../../src/store/leveldb/engine/checksum.js'
import { type Engine, pagesOf } from '../../../../src/store/leveldb/engine/engine.js'
import { checkExpiries } from '../../../../src/store/leveldb/integrity/check-expiries.js'
import { checkRecords } from '../../../../src/store/leveldb/integrity/check-records.js'
import { EXPIRY_RANGE, expiryKey } from '../../../../src/store/leveldb/records/keyspace.js'
import { repairDirectory } from '../../../../src/store/leveldb/repair/repair-directory.js'
import type { Timestamp } from '../../../../src/timestamp.js'
import { changesOf } from '../../suite/change-readings.js'
import { put, START_MS, testStores, utf8, write } from '../../support.js'

const stores = testStores()
const NOTHING = Buffer.alloc(0)
const EXPIRIES: readonly (readonly [key: string, startTs: Timestamp, commitTs: Timestamp, expireTs: Timestamp])[] = [
  ['collected', 5, 6, 40],
  ['a', 50, 51, 100],
  ['b', 52, 53, 100],
  ['late', 54, 55, 10],
]

async function written(): Promise<string> {
  const directory = await stores.directory()
  const store = await stores.open({ directory, now: () => START_MS })
  for (const [key, startTs, commitTs, expireTs] of EXPIRIES) {
    await write(store, startTs, commitTs, [{ ...put(key), expireTs }])
    if (key === 'collected') await store.upkeep.collect(45)
  }
  await store.close()
  return directory
}

async function withEngine<T>(directory: string, body: (raw: Engine) => Promise<T>): Promise<T> {
  const raw = await openLevelDb(directory)
  try {
    return await body(raw)
  } finally {
    await raw.close()
  }
}

async function findingsIn(raw: Engine): Promise<string[]> {
  const found: string[] = []
  await checkExpiries(raw, ({ kind, message, isLoss }) => {
    found.push(`${kind}: ${message}`)
    expect(isLoss).toBe(false)
  })
  return found
}

async function entriesIn(raw: Engine): Promise<string[]> {
  const names: string[] = []
  for await (const page of pagesOf(raw, EXPIRY_RANGE, 100))
    for (const [stored] of page) names.push(stored.toString('hex'))
  return names
}

test('a sound database has an entry per version that expires above the safe point, and no finding', async () => {
  await withEngine(await written(), async (raw) => {
    expect(await findingsIn(raw)).toEqual([])
    const kept = EXPIRIES.slice(1).map(([key, , commitTs, expireTs]) =>
      expiryKey(Math.max(expireTs, commitTs), utf8(key), commitTs),
    )
    expect(await entriesIn(raw)).toEqual(kept.map((name) => name.toString('hex')).sort())
  })
})

test('missing, damaged and undecodable entries are found, and a repair makes them as they were', async () => {
  const directory = await written()
  const before = await withEngine(directory, async (raw) => {
    const entries = await entriesIn(raw)
    await raw.write(
      [
        { type: 'del', key: expiryKey(100, utf8('a'), 51) },
        { type: 'put', key: expiryKey(100, utf8('b'), 53), value: Buffer.from('no seal') },
        { type: 'put', key: Buffer.from('e short'), value: NOTHING },
      ],
      true,
    )
    expect(await findingsIn(raw)).toEqual([
      'damaged_record: the expiry at 100 of "b" written at 53 fails its checksum',
      'damaged_record: the record under the damaged key 0x652073686f7274 does not decode',
      'missing_expiry: the put record of "a" at 51 has no entry of its expiry at 100',
    ])
    expect((await checkRecords(raw, { onFinding: () => {} })).findings).toBe(3)
    return entries
  })
  const repaired = await repairDirectory(directory, { isDryRun: false, keepsCopy: false, say: () => {} })
  expect(repaired).toMatchObject({ isSound: true, losses: 0 })
  await withEngine(directory, async (raw) => {
    expect(await entriesIn(raw)).toEqual(before)
    expect((await checkRecords(raw, { onFinding: () => {} })).families.expiry.records).toBe(3)
  })
})

test('an entry without its version is no finding, and no feed tells of it', async () => {
  const directory = await written()
  await withEngine(directory, async (raw) => {
    await sealedEngine(raw).write([{ type: 'put', key: expiryKey(60, utf8('nobody'), 59), value: NOTHING }], true)
    expect(await findingsIn(raw)).toEqual([])
  })
  const store = await stores.open({ directory, now: () => START_MS })
  await store.tso(1)
  const expired = (await changesOf(store, { since: 45 })).filter(({ type }) => type === 'expire')
  expect(expired.map(({ key, commitTs }) => `${key} ${commitTs}`)).toEqual(['late 55', 'a 100', 'b 100'])
})

test('an entry that does not decode stops the start, and a repair removes it', async () => {
  const directory = await written()
  await withEngine(directory, (raw) => raw.write([{ type: 'put', key: Buffer.from('e\0'), value: NOTHING }], true))
  await expect(stores.open({ directory, now: () => START_MS })).rejects.toThrow(/damaged/)
  await repairDirectory(directory, { isDryRun: false, keepsCopy: false, say: () => {} })
  await stores.open({ directory, now: () => START_MS })
})
