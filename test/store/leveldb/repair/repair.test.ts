import { cpSync } from 'node:fs'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { CLOCK_MS_MAX } from '../../../../src/limits.js'
import { attachedKey } from '../../../../src/percolator/codec/attached-key.js'
import { decodeKeyTs } from '../../../../src/percolator/codec/key.js'
import { decodeLock } from '../../../../src/percolator/codec/lock.js'
import { packRecord, unpackRecord } from '../../../../src/percolator/codec/record.js'
import { decodeWrite } from '../../../../src/percolator/codec/write.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { sealedEngine } from '../../../../src/store/leveldb/engine/checksum.js'
import { type Engine, type EngineOp, pagesOf } from '../../../../src/store/leveldb/engine/engine.js'
import { readMetaNumber } from '../../../../src/store/leveldb/engine/meta-number.js'
import { mendedTable } from '../../../../src/store/leveldb/files/table-file.js'
import { checkDirectory } from '../../../../src/store/leveldb/integrity/check-directory.js'
import { openLevelDbStore } from '../../../../src/store/leveldb/leveldb-store.js'
import {
  CF_DEFAULT,
  CF_LOCK,
  CF_NEWEST,
  CF_WRITE,
  META_MARK,
  META_SAFE_POINT,
  newestKey,
  valueKey,
  writeKey,
} from '../../../../src/store/leveldb/records/keyspace.js'
import type { Loss } from '../../../../src/store/leveldb/repair/loss.js'
import { type Repaired, repairDirectory } from '../../../../src/store/leveldb/repair/repair-directory.js'
import type { Store } from '../../../../src/store/store.js'
import { TIMESTAMP_MAX, type Timestamp, timestampFromMs } from '../../../../src/timestamp.js'
import { Random } from '../../../anomalies/random.js'
import { codeOf, makeDirectory, prewriteOf, put, START_MS, testStores, text, utf8, write } from '../../support.js'
import { entriesOfEngine } from '../directory/old-format.js'
import { damage, filesOf, KINDS } from '../integrity/damage-files.js'
import { attachedKeysOf, type Model, REFUSED, writeRandomDatabase } from './random-database.js'
import { covers, differencesIn, unreportedCells } from './repaired-reads.js'

/** More of them: CI=1 PERKV_TEST_RUNS=1000 PERKV_TEST_SEED=1 npx vitest run test/store/leveldb/repair/repair.test.ts --test-timeout=3600000 */
const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 3)
const LONG = { timeout: 60_000 + RUNS * 5000 }
const SEED = Number(process.env['PERKV_TEST_SEED'] ?? 1)
/** The clock of repairs and of the servers after them. */
const REPAIR_MS = START_MS + 60_000

const stores = testStores()
const made: string[] = []
afterEach(async () => {
  for (const directory of made.splice(0)) await rm(directory, { recursive: true, force: true })
})

async function newDirectory(): Promise<string> {
  const directory = await makeDirectory()
  made.push(directory)
  return directory
}

interface Outcome extends Repaired {
  readonly lines: readonly string[]
  readonly lost: readonly Loss[]
}

async function repair(
  directory: string,
  options: Partial<Parameters<typeof repairDirectory>[1]> = {},
): Promise<Outcome> {
  const lines: string[] = []
  const lost: Loss[] = []
  const repaired = await repairDirectory(directory, {
    say: (line) => void lines.push(line),
    onLoss: (loss) => void lost.push(loss),
    isDryRun: false,
    keepsCopy: false,
    now: () => REPAIR_MS,
    ...options,
  })
  if (options.say === undefined)
    expect(lines.filter((line) => line.startsWith('lost: '))).toEqual(lost.map(({ message }) => `lost: ${message}`))
  return { ...repaired, lines, lost }
}

const open = (directory: string, nowMs = REPAIR_MS): Promise<Store> =>
  stores.open({ directory, now: () => nowMs, openEngine: openLevelDb })

async function withEngine<T>(directory: string, body: (engine: Engine) => Promise<T>): Promise<T> {
  const engine = await openLevelDb(directory)
  try {
    return await body(sealedEngine(engine))
  } finally {
    await engine.close()
  }
}

/** The mark, and the highest timestamp that is stored. */
async function timestampsIn(directory: string): Promise<{ mark: Timestamp; newest: Timestamp }> {
  return withEngine(directory, async (engine) => {
    let newest = 0
    for (const prefix of [CF_DEFAULT, CF_LOCK, CF_WRITE])
      for await (const page of pagesOf(engine, { gte: Buffer.of(prefix), lt: Buffer.of(prefix + 1) }, 1000))
        for (const [key, value] of page) {
          const lock = prefix === CF_LOCK ? decodeLock(value) : undefined
          const startTs = prefix === CF_WRITE ? decodeWrite(value, decodeKeyTs(key)).startTs : 0
          newest = Math.max(newest, startTs, lock === undefined ? decodeKeyTs(key) : lock.startTs)
        }
    return { mark: await readMetaNumber(engine, META_MARK), newest }
  })
}

async function isSound(directory: string): Promise<boolean> {
  return (await checkDirectory(directory, { onFinding: () => {}, now: () => REPAIR_MS })).isSound
}

/** New writes go above all that is there, and what a backup reads is what each key answers. */
async function expectUsable(directory: string, model: Model): Promise<void> {
  const { mark, newest } = await timestampsIn(directory)
  expect(mark).toBeGreaterThan(newest)
  const store = await open(directory)
  const startTs = await store.tso(1)
  expect(startTs).toBeGreaterThan(newest)
  const unlocked = [...model.keys].filter((key) => !model.locks.has(key)).slice(0, 20)
  for (const key of unlocked) {
    const ts = await store.tso(2)
    if ((await codeOf(write(store, ts - 1, ts, [put(key, `new of ${key}`)]))) !== 'none') continue // Half of a transaction.
    const found = await store.get({ key: utf8(key), ts: await store.tso(1) })
    expect(found).toMatchObject({ found: true, commitTs: ts, value: utf8(`new of ${key}`) })
  }
  const { locks } = await store.scanLock({ maxTs: TIMESTAMP_MAX })
  for (const lock of locks) await store.rollback({ keys: [lock.key], startTs: lock.startTs })
  const ts = await store.tso(1)
  const { pairs } = await store.scan({ ts, limit: 10_000 })
  const answers = await Promise.all(
    [...model.keys].sort().map(async (key) => ({ key, answer: await store.get({ key: utf8(key), ts }) })),
  )
  expect(pairs.map(({ key, value }) => [text(key), value && text(value)])).toEqual(
    answers.flatMap(({ key, answer }) => (answer.found ? [[key, text(answer.value)]] : [])),
  )
  await store.close()
}

/** The newest committed values, locks or none. */
async function presentOf(store: Store, model: Model): Promise<string> {
  const { locks } = await store.scanLock({ maxTs: TIMESTAMP_MAX })
  const lockedAt = new Map(locks.map(({ key, startTs }) => [text(key), startTs]))
  const found = await Promise.all(
    [...model.keys].map(async (key) => {
      const startTs = lockedAt.get(key)
      const answer = await store.get({ key: utf8(key), ts: startTs === undefined ? undefined : startTs - 1 })
      return answer.found ? [`${key} ${text(answer.value)}`] : []
    }),
  )
  return found.flat().sort().join('\n')
}

describe('after damage of any kind', () => {
  test(`each read is as before, or among what is reported as lost: ${RUNS} databases`, LONG, async () => {
    for (let run = 0; run < RUNS; run++) {
      const random = new Random(SEED * 1_000_003 + run)
      const directory = await newDirectory()
      const { model, presents } = await writeRandomDatabase(directory, random)
      // A damaged end of the log looks like what a crash leaves: then the writes before it are there, and no others.
      const isOfLog = random.chance(0.2)
      const files = random.shuffled(await filesOf(directory, isOfLog ? /log$/ : /(ldb|MANIFEST-.*|CURRENT)$/))
      const done: string[] = []
      for (const file of files.slice(0, 1 + random.below(2) * random.below(3)))
        done.push(await damage(directory, random, random.pick(KINDS), file))
      try {
        const { lost, findings, isSound: isRepaired } = await repair(directory)
        expect([isRepaired, await isSound(directory)]).toEqual([true, true])
        const store = await open(directory)
        if (isOfLog) {
          expect(presents).toContain(await presentOf(store, model))
          expect(lost.length > 0).toBe(findings > 0)
        } else {
          const differences = await differencesIn(store, model)
          expect(differences.filter((one) => !lost.some((loss) => covers(loss, one)))).toEqual([])
          expect(await unreportedCells(store, model, lost)).toEqual([])
        }
        await store.close()
        if (findings > 0) await expectUsable(directory, model)
        expect(await repair(directory)).toMatchObject({ isSound: true, findings: 0, losses: 0 })
      } catch (error) {
        throw new Error(`PERKV_TEST_SEED=${SEED}, run ${run}: ${done.join('; ')}`, { cause: error })
      }
      await rm(directory, { recursive: true })
    }
  })

  test(
    'a repair that is killed half-way is finished by the next one, and no server starts in between',
    LONG,
    async () => {
      for (let run = 0; run < RUNS; run++) {
        const random = new Random(SEED * 1_000_003 + run)
        const directory = await newDirectory()
        const { model } = await writeRandomDatabase(directory, random)
        const files = await filesOf(directory, run % 2 === 0 ? /ldb$/ : /(ldb|MANIFEST-.*)$/)
        const done = await damage(
          directory,
          random,
          random.pick(['flips', 'zero', 'truncate'] as const),
          random.pick(files),
        )
        const killed = await newDirectory()
        // The first line after the files were changed, and any later one.
        const after = random.below(6)
        const before: Loss[] = []
        let lines = 0
        await repair(directory, {
          say: (line) => {
            if (lines > 0 || line.startsWith('lost') || line.startsWith('restored')) lines++
            if (lines === after + 1) cpSync(directory, killed, { recursive: true })
          },
          onLoss: (loss) => void (lines <= after + 1 && before.push(loss)),
        })
        if (lines <= after) continue
        await expect(openLevelDbStore({ directory: killed, durability: 'async' }), done).rejects.toThrow(
          /REPAIR: perkv repair was interrupted/,
        )
        const { lost, isSound: isRepaired } = await repair(killed)
        expect([done, isRepaired, await isSound(killed)]).toEqual([done, true, true])
        const store = await open(killed)
        // Mended files don't show it any more: the journal does.
        const ranges = before.flatMap(({ range, message }) => (range === undefined ? [] : [message]))
        expect(lost.map(({ message }) => message)).toEqual(expect.arrayContaining(ranges))
        const all = [...before, ...lost]
        expect((await differencesIn(store, model)).filter((one) => !all.some((loss) => covers(loss, one)))).toEqual([])
        expect(await unreportedCells(store, model, all)).toEqual([])
        await store.close()
        await expectUsable(killed, model)
      }
    },
  )

  test('records that were damaged before a compaction gave them new checksums', LONG, async () => {
    for (let run = 0; run < RUNS; run++) {
      const random = new Random(SEED * 7_000_003 + run)
      const directory = await newDirectory()
      const { model } = await writeRandomDatabase(directory, random, { rounds: 2 })
      const engine = await openLevelDb(directory)
      const entries = await entriesOfEngine(engine)
      const chosen = random.shuffled(entries).slice(0, 1 + random.below(40))
      await engine.write(
        chosen.map(([key, value]) => {
          value[random.below(value.length)] = random.below(256)
          return { type: 'put', key, value }
        }),
        true,
      )
      await engine.close()
      const { lost, isSound: isRepaired } = await repair(directory)
      expect([run, isRepaired, await isSound(directory)]).toEqual([run, true, true])
      const store = await open(directory)
      const differences = await differencesIn(store, model)
      expect(differences.filter((one) => !lost.some((loss) => covers(loss, one)))).toEqual([])
      expect(await unreportedCells(store, model, lost)).toEqual([])
      await store.close()
      await expectUsable(directory, model)
    }
  })

  const keys = Array.from({ length: 900 }, (_, i) => `key/${String(i).padStart(4, '0')}`)

  /** In a table of its own. */
  async function inTable(directory: string, body: (store: Store) => Promise<unknown>): Promise<string> {
    const store = await open(directory, START_MS)
    await body(store)
    await store.close()
    await withEngine(directory, async () => {}) // What is in the log becomes a table.
    return (await filesOf(directory, /ldb$/)).at(-1) as string
  }

  async function writeAll(store: Store): Promise<void> {
    for (let from = 0; from < keys.length; from += 50) {
      const ts = await store.tso(2)
      await write(
        store,
        ts - 1,
        ts,
        keys.slice(from, from + 50).map((key) => put(key, `value of ${key}`)),
      )
    }
  }

  /** The block with the record that stands in the middle of a column family. */
  async function overwrite(directory: string, file: string, prefix: number): Promise<void> {
    const bytes = await readFile(join(directory, file))
    const middle = prefix === CF_WRITE ? writeKey(utf8('key/0600'), 1) : newestKey(utf8('key/0600'))
    for (let at = 0; at < bytes.length; at += 50) {
      const changed = Buffer.from(bytes)
      changed.write('????', at)
      const [range] = mendedTable(changed, bytes.length).lost
      if (range?.gte === undefined || range.gte.compare(middle) > 0 || (range.lte?.compare(middle) ?? -1) < 0) continue
      return writeFile(join(directory, file), changed)
    }
    throw new Error('there is no such block')
  }

  const pairsIn = async (directory: string): Promise<string[]> => {
    const store = await open(directory)
    const { pairs } = await store.scan({ ts: await store.tso(1), limit: 1000 })
    await store.close()
    return pairs.map(({ value }) => text(value as Uint8Array))
  }

  const TWINS = [
    ['CF_WRITE', CF_WRITE],
    ['CF_NEWEST', CF_NEWEST],
  ] as const

  test.each(TWINS)('4 bytes overwritten in %s: the newest versions of all keys are there', async (_, prefix) => {
    const directory = await newDirectory()
    await overwrite(directory, await inTable(directory, writeAll), prefix)
    const { lines, restored, lost } = await repair(directory)
    expect(await pairsIn(directory)).toEqual(keys.map((key) => `value of ${key}`))
    expect(restored).toBeGreaterThan(20)
    expect(lines.filter((line) => line.startsWith('removed'))).toEqual([])
    expect(lost.map(({ of }) => of)).toEqual(prefix === CF_WRITE ? ['past'] : [])
  })

  test.each(TWINS)('4 bytes overwritten where %s was deleted: what comes back goes again', async (_, prefix) => {
    const directory = await newDirectory()
    await inTable(directory, writeAll)
    const deleted = await inTable(directory, (store) => store.deleteRange({ start: utf8('key/'), end: utf8('key0') }))
    await overwrite(directory, deleted, prefix)
    const { removed, lost } = await repair(directory)
    expect(await pairsIn(directory)).toEqual([])
    expect(removed).toBeGreaterThan(10)
    expect(lost.map(({ of }) => of)).toEqual(prefix === CF_WRITE ? ['past'] : [])
  })
})

test('a lock whose transaction was decided by a record that is lost is reported too', async () => {
  const directory = await newDirectory()
  const store = await open(directory, START_MS)
  const ts = await store.tso(4)
  const [startTs, commitTs] = [ts - 3, ts - 2]
  await store.prewrite(prewriteOf(startTs, [put('primary'), put('other')]))
  await store.commit({ keys: [utf8('primary')], startTs, commitTs })
  await store.prewrite(prewriteOf(startTs, [put('third')], { primary: utf8('intact') }))
  await write(store, ts - 1, ts, [put('primary', 'newer')])
  await store.close()
  const engine = await openLevelDb(directory)
  await engine.write([{ type: 'put', key: writeKey(utf8('primary'), commitTs), value: Buffer.from('?') }], true)
  await engine.close()
  const { lost, lines } = await repair(directory)
  expect(lost.map(({ key }) => key && text(key))).toEqual(['primary', 'other'])
  expect(lines.at(-1)).toMatch(
    /^lost: "other": maybe the end of the transaction at \d+, .* its records of "primary" may be lost$/,
  )
})

test('behind a damaged record of the log all is kept where that is asked for', async () => {
  for (const keepsLater of [false, true]) {
    const directory = await newDirectory()
    const store = await open(directory, START_MS)
    const keys = Array.from({ length: 60 }, (_, i) => `key/${i}`)
    for (const key of keys) {
      const ts = await store.tso(2)
      await write(store, ts - 1, ts, [put(key, key.repeat(200))])
    }
    await store.close()
    const [log] = (await filesOf(directory, /log$/)) as [string]
    const bytes = await readFile(join(directory, log))
    bytes.write('????', bytes.indexOf('key/30key/30') + 400)
    await writeFile(join(directory, log), bytes)
    const { lost } = await repair(directory, { keepsLater })
    expect(lost.map(({ of }) => of)).toEqual(['anything', ...(keepsLater ? ['key'] : [])])
    const after = await open(directory)
    const found = await Promise.all(keys.map(async (key) => (await after.get({ key: utf8(key) })).found))
    expect(found).toEqual(keys.map((_, i) => i < 30 || (keepsLater && i > 30)))
    await after.close()
  }
})

test('an older version that counts again is attached to its lease as before', async () => {
  const directory = await newDirectory()
  const store = await open(directory, START_MS)
  const fence = await store.tso(1)
  store.leases.listen({ fencesAt: (names) => names.map(() => fence), attaches: async () => {} })
  const attached = [
    { ...put('a', 'attached'), leaseFence: fence },
    { op: 'put' as const, key: attachedKey(fence, utf8('a')), value: new Uint8Array() },
  ]
  const commitEffects = { leases: [{ lease: 'l', fence }] }
  await store.prewrite(prewriteOf(await store.tso(1), attached, { tryOnePc: true, commitEffects }))
  const ts = await store.tso(1)
  await store.prewrite(prewriteOf(ts, [put('a', 'detached '.repeat(100))], { tryOnePc: true }))
  await attachedKeysOf(store).end(fence)
  await store.close()
  const engine = await openLevelDb(directory)
  await engine.write([{ type: 'put', key: valueKey(utf8('a'), ts), value: Buffer.from('?') }], true)
  await engine.close()
  const { isSound: isRepaired, lost } = await repair(directory)
  expect([isRepaired, await isSound(directory)]).toEqual([true, true])
  expect(lost.map(({ key }) => key && text(key))).toEqual(['a'])
  const again = await open(directory)
  expect([...(await attachedKeysOf(again).fences())]).toEqual([fence]) // A server deletes what no lease holds.
  await attachedKeysOf(again).end(fence)
  expect(await again.get({ key: utf8('a') })).toMatchObject({ found: false })
  await again.close()
})

describe('the mark', () => {
  async function rewrite(directory: string, ops: readonly EngineOp[]): Promise<void> {
    await withEngine(directory, (engine) => engine.write(ops, true))
  }
  const markOf = (ts: number): EngineOp => ({ type: 'put', key: META_MARK, value: packRecord([ts]) })
  const YEAR_MS = 365 * 86_400_000

  test.each([
    ['is gone', { type: 'del', key: META_MARK } as const],
    ['is no timestamp', markOf(timestampFromMs(START_MS + 150 * YEAR_MS))],
  ])('that %s goes above all data, though the clock was stepped back', async (_, op) => {
    const directory = await newDirectory()
    const { model } = await writeRandomDatabase(directory, new Random(SEED), { keys: 30, nowMs: REPAIR_MS + YEAR_MS })
    await rewrite(directory, [op])
    expect(await isSound(directory)).toBe(false)
    expect(await repair(directory)).toMatchObject({ isSound: true, losses: 0 })
    const store = await open(directory)
    expect(await differencesIn(store, model)).toEqual([])
    await store.close()
    await expectUsable(directory, model)
  })

  test('that is older than the data goes above them', async () => {
    const directory = await newDirectory()
    const { model } = await writeRandomDatabase(directory, new Random(SEED), { keys: 30, rounds: 1, txns: 10 })
    const extraFields = [1, 2, 3]
    const old = packRecord([timestampFromMs(START_MS - YEAR_MS), extraFields])
    await rewrite(directory, [{ type: 'put', key: META_MARK, value: old }])
    expect(await repair(directory)).toMatchObject({ isSound: true, losses: 0 })
    const record = await withEngine(directory, (engine) => engine.get(META_MARK))
    expect(unpackRecord(record as Buffer, 'meta', 1)[1]).toEqual(extraFields)
    await expectUsable(directory, model)
  })

  test('and a safe point that is damaged: that goes above all data, and the past is reported as lost', async () => {
    const directory = await newDirectory()
    const { model } = await writeRandomDatabase(directory, new Random(SEED), { keys: 30, rounds: 1, txns: 10 })
    const engine = await openLevelDb(directory)
    await engine.write([{ type: 'put', key: META_SAFE_POINT, value: Buffer.from('?') }], true)
    await engine.close()
    const { lost } = await repair(directory)
    expect(lost.map(({ of, range }) => [of, range])).toEqual([['past', undefined]])
    const { mark } = await timestampsIn(directory)
    const store = await open(directory)
    expect([store.safePoint, mark]).toEqual([mark, expect.any(Number)])
    expect((await differencesIn(store, model)).filter(({ found }) => found !== REFUSED)).toEqual([])
    await store.close()
    await expectUsable(directory, model)
  })

  test('goes above data of a clock that was wrong to the end of time', async () => {
    const directory = await newDirectory()
    const nowMs = CLOCK_MS_MAX - YEAR_MS
    const { model } = await writeRandomDatabase(directory, new Random(SEED), { keys: 30, rounds: 1, txns: 10, nowMs })
    await rewrite(directory, [{ type: 'del', key: META_MARK }])
    expect(await repair(directory)).toMatchObject({ isSound: true, losses: 0 })
    const store = await open(directory)
    expect(await differencesIn(store, model)).toEqual([])
    await store.close()
    await expectUsable(directory, model)
  })

  test('of a wild clock stays as it is, unless it is to be set anew', async () => {
    const directory = await newDirectory()
    const { model } = await writeRandomDatabase(directory, new Random(SEED), { keys: 30, txns: 10 })
    const wild = timestampFromMs(START_MS + 80 * YEAR_MS)
    const safePoint: EngineOp = { type: 'put', key: META_SAFE_POINT, value: packRecord([wild - 1]) }
    await rewrite(directory, [markOf(wild), safePoint])
    const { findings, lines } = await repair(directory)
    expect([findings, (await timestampsIn(directory)).mark]).toEqual([0, wild])
    expect(lines.join()).toContain('--reset-mark puts it right')

    const reset = await repair(directory, { resetsMark: true })
    expect(reset).toMatchObject({ isSound: true, losses: 0 })
    const { mark } = await timestampsIn(directory)
    expect(mark).toBeLessThan(timestampFromMs(REPAIR_MS + 10_000))
    const store = await open(directory)
    expect(store.safePoint).toBe(mark)
    const present = await store.tso(1)
    for (const key of model.keys)
      if (!model.locks.has(key))
        expect((await store.get({ key: utf8(key), ts: present })).found).toBe(model.read(key, present) !== '(absent)')
    await store.close()
    await expectUsable(directory, model)
  })

  test('set anew stays above data of the future', async () => {
    const directory = await newDirectory()
    const { model } = await writeRandomDatabase(directory, new Random(SEED), { keys: 30, nowMs: REPAIR_MS + YEAR_MS })
    const { lines } = await repair(directory, { resetsMark: true })
    expect(lines.join()).toContain('the mark is far ahead of the clock still')
    await expectUsable(directory, model)
  })
})
