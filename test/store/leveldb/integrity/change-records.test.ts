import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { decodeChanges, encodeChanges } from '../../../../src/changes/rules/codec/change-log.js'
import type { RangeChange } from '../../../../src/percolator/change.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { sealedEngine } from '../../../../src/store/leveldb/engine/checksum.js'
import { type Engine, pagesOf } from '../../../../src/store/leveldb/engine/engine.js'
import { checkLog } from '../../../../src/store/leveldb/integrity/check-log.js'
import { checkRecords } from '../../../../src/store/leveldb/integrity/check-records.js'
import { RemovedRanges } from '../../../../src/store/leveldb/integrity/removed-ranges.js'
import {
  CF_LOG,
  logKey,
  META_LOG_START,
  metaKey,
  newestKey,
  writeKey,
} from '../../../../src/store/leveldb/records/keyspace.js'
import { repairDirectory } from '../../../../src/store/leveldb/repair/repair-directory.js'
import type { Store } from '../../../../src/store/store.js'
import type { Timestamp } from '../../../../src/timestamp.js'
import { changesOf, type ReadChange } from '../../suite/change-readings.js'
import { del, prewriteOf, put, START_MS, testStores, utf8 } from '../../support.js'

const stores = testStores()

interface Written {
  readonly directory: string
  /** As a feed read them before the damage. */
  readonly changes: readonly ReadChange[]
  readonly commits: readonly Timestamp[]
}

async function commit(store: Store, ...mutations: Parameters<typeof prewriteOf>[1]): Promise<Timestamp> {
  const request = prewriteOf(await store.tso(1), mutations, { tryOnePc: true, linearizable: true })
  return (await store.prewrite(request)).onePcCommitTs ?? 0
}

/** Collected changes, puts, deletes, long values, a removed range, a commit ahead of the clock, and a lock. */
async function written(): Promise<Written> {
  const directory = await stores.directory()
  const store = await stores.open({ directory, now: () => START_MS })
  await commit(store, put('old'), put('a'))
  await store.upkeep.collect(await store.tso(1))
  const commits: Timestamp[] = []
  commits.push(await commit(store, put('a', '1'), put('b', 'x'.repeat(5000)), del('c')))
  commits.push(await commit(store, put('removed/1'), put('removed/2')))
  await store.deleteRange({ start: utf8('removed/'), end: utf8('removed0') })
  commits.push(await commit(store, put('a', '2'), put('removed/2', 'again')))
  const startTs = await store.tso(1)
  const ahead = startTs + 4000 * 2048
  await store.prewrite(prewriteOf(startTs, [put('ahead')]))
  await store.commit({ keys: [utf8('ahead')], startTs, commitTs: ahead })
  await store.prewrite(prewriteOf(await store.tso(1), [put('locked')]))
  const changes = await changesOf(store)
  await store.close()
  return { directory, changes, commits }
}

async function withEngine<T>(directory: string, body: (sealed: Engine, raw: Engine) => Promise<T>): Promise<T> {
  const engine = await openLevelDb(directory)
  try {
    return await body(sealedEngine(engine), engine)
  } finally {
    await engine.close()
  }
}

async function problemsOf(directory: string, inMemory?: number): Promise<string[]> {
  const found: string[] = []
  const onFinding = ({ kind, message }: { kind: string; message: string }): void => {
    found.push(`${kind}: ${message}`)
  }
  await withEngine(directory, async (_, raw) => {
    if (inMemory === undefined) await checkRecords(raw, { onFinding, now: () => START_MS })
    else await checkLog(raw, onFinding, inMemory)
  })
  return found
}

async function repaired(directory: string): Promise<{ lost: string[]; isSound: boolean; changes: ReadChange[] }> {
  const lines: string[] = []
  const options = { say: (line: string) => void lines.push(line), isDryRun: false, keepsCopy: false }
  const { isSound } = await repairDirectory(directory, { ...options, now: () => START_MS })
  expect(await problemsOf(directory)).toEqual([])
  const store = await stores.open({ directory, now: () => START_MS + 1 })
  await store.tso(1)
  const { locks } = await store.scanLock({ maxTs: Number.MAX_SAFE_INTEGER })
  for (const { key, startTs } of locks) await store.rollback({ keys: [key], startTs })
  const changes = await changesOf(store)
  await store.close()
  return { lost: lines.filter((line) => line.startsWith('lost: ')), isSound, changes }
}

async function logIn(sealed: Engine): Promise<{ stored: Buffer; value: Buffer }[]> {
  const found: { stored: Buffer; value: Buffer }[] = []
  for await (const page of pagesOf(sealed, { gte: Buffer.of(CF_LOG), lt: Buffer.of(CF_LOG + 1) }, 100))
    found.push(...page.map(([stored, value]) => ({ stored, value })))
  return found
}

test('a log and the records of keys that name each other are sound', async () => {
  const { directory } = await written()
  expect(await problemsOf(directory)).toEqual([])
  expect(await problemsOf(directory, 1)).toEqual([])
})

describe('the log is made again from the records of keys', () => {
  test('where records of it are gone, in one part or in many', async () => {
    const { directory, changes } = await written()
    await withEngine(directory, async (sealed) => {
      const gone = (await logIn(sealed)).filter(({ value }) => decodeChanges(value)[0]?.type !== 'delete_range')
      await sealed.write(
        gone.map(({ stored }) => ({ type: 'del', key: stored })),
        true,
      )
    })
    const problems = await problemsOf(directory)
    expect(problems.map((line) => line.replace(/\d{9,}/g, 'TS')).sort()).toEqual([
      'missing_change: the change of the delete record of "c" at TS is missing',
      'missing_change: the change of the put record of "a" at TS is missing',
      'missing_change: the change of the put record of "a" at TS is missing',
      'missing_change: the change of the put record of "ahead" at TS is missing',
      'missing_change: the change of the put record of "b" at TS is missing',
      'missing_change: the change of the put record of "removed/2" at TS is missing',
    ])
    expect((await problemsOf(directory, 1)).sort()).toEqual([...problems].sort())
    const after = await repaired(directory)
    expect(after).toMatchObject({ lost: [], isSound: true })
    expect(after.changes).toEqual(changes)
  })

  test('where a record of it is damaged; a removal in it is a loss', async () => {
    const { directory, changes } = await written()
    await withEngine(directory, async (_, raw) => {
      for (const { stored, value } of await logIn(raw)) {
        const flipped = Buffer.from(value)
        flipped[5] = (flipped[5] ?? 0) ^ 1
        await raw.write([{ type: 'put', key: stored, value: flipped }], true)
      }
    })
    const after = await repaired(directory)
    expect(after.isSound).toBe(true)
    expect(after.lost.length).toBeGreaterThan(0)
    expect(after.lost.every((line) => line.includes('any delete_range in it'))).toBe(true)
    expect(after.changes).toEqual(changes.filter(({ type }) => type !== 'delete_range'))
  })

  test('where a record of it stands in the wrong place', async () => {
    const { directory, changes, commits } = await written()
    await withEngine(directory, async (sealed) => {
      for (const { stored, value } of await logIn(sealed)) {
        const [first] = decodeChanges(value)
        if (first === undefined || first.commitTs !== commits[0]) continue
        const place = logKey({ ...first, commitTs: first.commitTs + 1 })
        await sealed.write(
          [
            { type: 'del', key: stored },
            { type: 'put', key: place, value },
          ],
          true,
        )
      }
    })
    expect((await problemsOf(directory))[0]).toMatch(
      /^damaged_record: the record of changes from \d+ on is out of order/,
    )
    expect((await repaired(directory)).changes).toEqual(changes)
  })
})

test('a version that is gone, and its change is not, is a loss; the change goes', { tags: ['long'] }, async () => {
  const { directory, changes, commits } = await written()
  await withEngine(directory, (sealed) =>
    sealed.write(
      [
        { type: 'del', key: writeKey(utf8('b'), commits[0] ?? 0) },
        { type: 'del', key: newestKey(utf8('b')) },
      ],
      true,
    ),
  )
  expect(await problemsOf(directory)).toContain(
    `lost_version: the put record of "b" at ${commits[0]} is gone, and its change is not`,
  )
  const after = await repaired(directory)
  expect(after.lost).toEqual([`lost: the put record of "b" at ${commits[0]} is gone, and its change is not`])
  expect(after.changes).toEqual(changes.filter(({ key }) => key !== 'b'))
})

test('a version that is restored from its copy is no loss', async () => {
  const { directory, changes, commits } = await written()
  await withEngine(directory, (sealed) =>
    sealed.write([{ type: 'del', key: writeKey(utf8('b'), commits[0] ?? 0) }], true),
  )
  expect((await problemsOf(directory)).map((line) => line.split(':')[0])).toEqual(['missing_write'])
  const after = await repaired(directory)
  expect(after).toMatchObject({ lost: [], isSound: true })
  expect(after.changes).toEqual(changes)
})

test('what the log names wrongly is a loss, and its other changes stay', { tags: ['long'] }, async () => {
  const { directory, changes, commits } = await written()
  await withEngine(directory, async (sealed) => {
    const change = { type: 'put', key: utf8('0'), commitTs: commits[0] ?? 0, startTs: 1 } as const
    const removed = { type: 'put', key: utf8('removed/1'), commitTs: commits[2] ?? 0, startTs: 1 } as const
    await sealed.write([{ type: 'put', key: logKey(change), value: encodeChanges([change, removed]) }], true)
  })
  // Above the removal of its range nothing explains that it is gone.
  expect((await problemsOf(directory)).map((line) => line.split(':')[0])).toEqual(['lost_version', 'lost_version'])
  expect((await repaired(directory)).changes).toEqual(changes)
})

test('where the beginning of the log is damaged, it begins at the mark', async () => {
  const { directory } = await written()
  await withEngine(directory, (_, raw) =>
    raw.write([{ type: 'put', key: META_LOG_START, value: Buffer.of(1, 2, 3) }], true),
  )
  expect(await problemsOf(directory)).toEqual(['damaged_record: the meta record "log/start" fails its checksum'])
  const after = await repaired(directory)
  expect(after.lost[0]).toMatch(/^lost: changes of the past: the log of changes begins at \d+ \(.*\) now/)
  expect(after.changes.map(({ key }) => key)).toEqual([])
})

test('a delete_range that a crash has cut off is no problem', async () => {
  const { directory, commits } = await written()
  const ts = (commits[2] ?? 0) + 1
  await withEngine(directory, async (sealed) => {
    const change = { type: 'delete_range', key: utf8('a'), end: utf8('b'), commitTs: ts, startTs: ts } as const
    await sealed.write(
      [
        {
          type: 'put',
          key: metaKey(`delete_range/${ts}`),
          value: Buffer.from([0x93, 0xc4, 1, 0x61, 0xc4, 1, 0x62, 0]),
        },
        { type: 'put', key: logKey(change), value: encodeChanges([change]) },
        { type: 'del', key: writeKey(utf8('a'), commits[0] ?? 0) },
      ],
      true,
    )
  })
  expect(await problemsOf(directory)).toEqual([])
})

test('which delete_range took a key last, by a model', { tags: ['long'] }, () => {
  const key = fc.uint8Array({ minLength: 0, maxLength: 2 }).map((raw) => Buffer.from(raw.map((byte) => byte % 4)))
  const removal = fc.record({ a: key, b: key, commitTs: fc.integer({ min: 1, max: 12 }) })
  fc.assert(
    fc.property(fc.array(removal, { maxLength: 8 }), fc.array(fc.tuple(key, fc.nat(12))), (removals, asked) => {
      const changes = removals.map(({ a, b, commitTs }): RangeChange => {
        const [start, end] = a.compare(b) <= 0 ? [a, b] : [b, a]
        return { type: 'delete_range', key: start, end, commitTs, startTs: commitTs }
      })
      const removed = new RemovedRanges(changes)
      for (const [each, commitTs] of asked)
        expect(removed.has({ type: 'put', key: each, commitTs, startTs: 0 })).toBe(
          changes.some(
            ({ key: start, end, commitTs: at }) => at >= commitTs && each.compare(start) >= 0 && each.compare(end) < 0,
          ),
        )
    }),
    { numRuns: 2000 },
  )
})
