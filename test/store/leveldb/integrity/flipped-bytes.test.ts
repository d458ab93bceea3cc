import { appendFile, copyFile, readdir, readFile, rename, rm, truncate, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { KvError } from '../../../../src/errors/kv-error.js'
import { reservedKey } from '../../../../src/percolator/codec/reserved-key.js'
import { DataDirectoryError } from '../../../../src/store/leveldb/data-directory-error.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import type { EngineOp } from '../../../../src/store/leveldb/engine/engine.js'
import { tableFaults } from '../../../../src/store/leveldb/files/table-file.js'
import { checkDirectory } from '../../../../src/store/leveldb/integrity/check-directory.js'
import { scrub } from '../../../../src/store/leveldb/integrity/scrub.js'
import { lockKey, META_FORMAT, META_MARK, newestKey, valueKey } from '../../../../src/store/leveldb/records/keyspace.js'
import { repairDirectory } from '../../../../src/store/leveldb/repair/repair-directory.js'
import type { Store } from '../../../../src/store/store.js'
import { timestampFromMs } from '../../../../src/timestamp.js'
import { Random } from '../../../anomalies/random.js'
import { serve } from '../../../http/support.js'
import { codeOf, del, failureOf, makeDirectory, prewriteOf, put, testStores, text, utf8, write } from '../../support.js'
import { entriesOfEngine } from '../directory/old-format.js'

const stores = testStores()

/** Bytes flipped, each in a database of its own. */
const FLIPS = Number(process.env['PERKV_FLIPS'] ?? 4)
const SEED = Number(process.env['PERKV_FLIPS_SEED'] ?? 1)

const KEYS = Array.from({ length: 120 }, (_, i) => `key/${String(i).padStart(3, '0')}`)
const TIMES = [15, 25, 35, 45, 55]
/** In the year 2100. */
const FAR_TS = timestampFromMs(Date.UTC(2100))
const ABSENT = '(absent)'

/** What each key is at each of TIMES; `undefined` where a lock or damage stands in the way. */
type Reads = Map<string, string | undefined>

async function readAll(store: Store): Promise<Reads> {
  const reads = KEYS.flatMap((key) =>
    TIMES.map(async (ts) => [`${key} at ${ts}`, await readOne(store, key, ts)] as const),
  )
  return new Map(await Promise.all(reads))
}

async function readOne(store: Store, key: string, ts?: number): Promise<string | undefined> {
  try {
    const answer = await store.get({ key: utf8(key), ts })
    return answer.found ? text(answer.value) : ABSENT
  } catch (error) {
    if (error instanceof KvError && ['storage_unavailable', 'key_locked'].includes(error.code)) return undefined
    throw error
  }
}

const original = makeDirectory()
let truth: Reads = new Map()
afterAll(async () => rm(await original, { recursive: true }))

/** Tables on two levels and a log; values short and long, some that expire one day, deletions, rollbacks, locks, outcomes. */
beforeAll(async () => {
  const directory = await original
  for (const [round, ts] of [10, 20, 30, 40, 50].entries()) {
    const store = await stores.open({ directory, openEngine: openLevelDb })
    const keys = KEYS.filter((_, i) => (i + round) % 3 !== 0)
    const value = (key: string): string => `${key} written at ${ts} `.repeat(key.endsWith('7') ? 30 : 2)
    const mutations = keys.map((key, i) => {
      if (i % 7 === round) return del(key)
      return i % 5 === round ? { ...put(key, value(key)), expireTs: FAR_TS + ts } : put(key, value(key))
    })
    for (let from = 0; from < mutations.length; from += 10)
      await write(store, ts - 2, ts, mutations.slice(from, from + 10))
    await store.rollback({ keys: KEYS.slice(0, 5).map(utf8), startTs: ts + 2 })
    const outcome = { op: 'put', key: reservedKey(utf8(`outcome/request ${round}`)), value: utf8('done') } as const
    await write(store, ts + 3, ts + 4, [outcome])
    if (round === 4) await store.prewrite(prewriteOf(60, [put('locked/1', 'x'.repeat(500)), put('locked/2', 'y')]))
    await store.close()
    if (round !== 2) continue
    const engine = await openLevelDb(directory)
    await engine.compactRange(Buffer.alloc(0), Buffer.alloc(8, 0xff))
    await engine.close()
  }
  const store = await stores.open({ directory: await copyOf(directory), openEngine: openLevelDb })
  truth = await readAll(store)
  await store.close()
})

async function copyOf(directory: string): Promise<string> {
  const copy = await stores.directory()
  for (const file of await readdir(directory)) await copyFile(join(directory, file), join(copy, file))
  return copy
}

async function filesOf(directory: string, pattern: RegExp): Promise<string[]> {
  return (await readdir(directory)).filter((file) => pattern.test(file)).sort()
}

async function flip(directory: string, file: string, at: number, bit: number): Promise<void> {
  const bytes = await readFile(join(directory, file))
  bytes[at] = (bytes[at] as number) ^ (1 << bit)
  await writeFile(join(directory, file), bytes)
}

async function findingsOf(directory: string): Promise<string[]> {
  const findings: string[] = []
  const { files, isSound } = await checkDirectory(directory, {
    onFinding: ({ message }) => void findings.push(message),
  })
  const messages = [...files.faults.map(({ message }) => message), ...findings]
  expect(isSound).toBe(messages.length === 0)
  return messages
}

/** Every read is the truth or refused, or the start is. */
async function startOutcome(directory: string): Promise<'refused' | 'right'> {
  try {
    const store = await stores.open({ directory })
    for (const [read, value] of await readAll(store))
      if (value !== undefined) expect(`${read}: ${value}`).toBe(`${read}: ${truth.get(read)}`)
    await store.close()
    return 'right'
  } catch (error) {
    if (!(error instanceof DataDirectoryError)) throw error
    expect(error.message).toMatch(/damaged|cannot be opened/)
    expect(error.message).not.toContain('\n')
    return 'refused'
  }
}

/** Repairs, and expects a sound database in which no value is one that the key never had. @returns lines, reads changed */
async function expectRepaired(directory: string): Promise<{ lines: string[]; changed: string[] }> {
  const lines: string[] = []
  const options = { say: (line: string) => void lines.push(line), isDryRun: false, keepsCopy: false }
  const repaired = await repairDirectory(directory, options)
  expect(lines.filter((line) => line.startsWith('still'))).toEqual([])
  expect(repaired.isSound).toBe(true)
  expect(repaired.findings).toBeGreaterThan(0)
  expect(await findingsOf(directory)).toEqual([])
  expect(await repairDirectory(directory, options)).toMatchObject({ isSound: true, findings: 0, losses: 0 })
  const store = await stores.open({ directory })
  const changed: string[] = []
  const isRaised = store.safePoint > 0
  for (const key of KEYS) {
    const values = new Set(TIMES.map((ts) => truth.get(`${key} at ${ts}`)))
    const value = await readOne(store, key)
    if (value !== ABSENT && value !== undefined) expect(values).toContain(value)
    if (value !== truth.get(`${key} at 55`)) changed.push(key)
  }
  if (!isRaised) for (const [read, value] of await readAll(store)) if (value !== truth.get(read)) changed.push(read)
  if (changed.length > 0) expect(repaired.losses).toBeGreaterThan(0)
  await store.close()
  return { lines, changed }
}

describe('a flipped byte', () => {
  test(`is never served: ${FLIPS} in every kind of file`, { timeout: 60_000 + FLIPS * 3000 }, async () => {
    const directory = await copyOf(await original)
    const random = new Random(SEED)
    const files = await filesOf(directory, /^(.*\.ldb|.*\.log|MANIFEST-.*|CURRENT)$/)
    const outcomes: Record<string, number> = {}
    for (let i = 0; i < FLIPS; i++) {
      const file = files[i % files.length] as string
      const { length } = await readFile(join(directory, file))
      const at = random.below(length)
      const bit = random.below(8)
      const what = `${file} byte ${at} bit ${bit}`
      const damaged = await copyOf(directory)
      await flip(damaged, file, at, bit)
      try {
        const outcome = await startOutcome(await copyOf(damaged))
        const findings = await findingsOf(await copyOf(damaged))
        expect(outcome).toBe(findings.length > 0 ? 'refused' : 'right')
        const { changed } = findings.length > 0 ? await expectRepaired(damaged) : { changed: [] }
        const kind = `${/[a-z]+$/i.exec(file.replace(/-\d+$/, ''))?.[0]}: ${outcome}${findings.length === 0 ? '' : changed.length > 0 ? ', repaired with losses' : ', repaired'}`
        outcomes[kind] = (outcomes[kind] ?? 0) + 1
      } catch (error) {
        throw new Error(`${what} (PERKV_FLIPS_SEED=${SEED}, flip ${i})`, { cause: error })
      }
    }
    if (FLIPS > 100) console.log(outcomes)
  })
})

describe('files that lost more than a byte', () => {
  const CASES: readonly (readonly [string, RegExp, (path: string) => Promise<void>])[] = [
    ['a table cut in half', /ldb$/, async (path) => truncate(path, (await readFile(path)).length >> 1)],
    ['an empty table', /ldb$/, (path) => truncate(path, 0)],
    ['an empty MANIFEST', /^MANIFEST/, (path) => truncate(path, 0)],
    ['a table that is gone', /ldb$/, (path) => rm(path)],
    ['a MANIFEST that is gone', /^MANIFEST/, (path) => rm(path)],
    ['an empty CURRENT', /^CURRENT$/, (path) => truncate(path, 0)],
    ['a CURRENT that is gone', /^CURRENT$/, (path) => rm(path)],
    ['a log that is gone', /log$/, (path) => rm(path)],
  ]
  test.each(CASES)('%s', async (_, pattern, damage) => {
    const directory = await copyOf(await original)
    const [file] = await filesOf(directory, pattern)
    await damage(join(directory, file as string))
    expect(await startOutcome(await copyOf(directory))).toBe('refused')
    expect(await findingsOf(directory)).toHaveLength(1)
    await expectRepaired(directory)
  })
})

test('a MANIFEST that is gone, where the older of two tables was compacted last', async () => {
  const directory = await stores.directory()
  for (const ts of [10, 20]) {
    const store = await stores.open({ directory })
    await write(store, ts, ts + 1, [put('k', String(ts))])
    await store.close()
    const engine = await openLevelDb(directory) // What is in the log becomes a table.
    await engine.close()
  }
  const [older, newer] = await filesOf(directory, /ldb$/)
  expect(newer).toBeDefined()
  await rename(join(directory, older as string), join(directory, '000900.ldb'))
  for (const file of await filesOf(directory, /^MANIFEST/)) await rm(join(directory, file))
  const options = { say: () => {}, isDryRun: false, keepsCopy: false }
  expect((await repairDirectory(directory, options)).isSound).toBe(true)
  const store = await stores.open({ directory })
  expect(await readOne(store, 'k')).toBe('20')
  await store.close()
})

test('a torn end of the log or the MANIFEST is no damage, and nothing to repair', async () => {
  const directory = await copyOf(await original)
  const [log] = await filesOf(directory, /log$/)
  const path = join(directory, log as string)
  await truncate(path, (await readFile(path)).length - 7)
  const [manifest] = await filesOf(directory, /^MANIFEST/)
  await appendFile(join(directory, manifest as string), Buffer.from('garbage of a crash'))
  const options = { say: () => {}, isDryRun: false, keepsCopy: false }
  expect(await repairDirectory(await copyOf(directory), options)).toMatchObject({
    isSound: true,
    findings: 0,
    losses: 0,
  })
  expect(await findingsOf(directory)).toEqual([])
})

test('a MANIFEST that lost its last records: what it does not know of any more is kept', async () => {
  const directory = await copyOf(await original)
  const engine = await openLevelDb(directory)
  const [manifest] = await filesOf(directory, /^MANIFEST/)
  const path = join(directory, manifest as string)
  const { length } = await readFile(path)
  await engine.compactRange(Buffer.alloc(0), Buffer.alloc(8, 0xff))
  await engine.close()
  await truncate(path, length)
  expect(await startOutcome(await copyOf(directory))).toBe('refused')
  const { changed } = await expectRepaired(directory)
  expect(changed).toEqual([])
})

test('a table that is damaged while the server runs stops all that reads from it', async () => {
  const directory = await copyOf(await original)
  for (const file of await filesOf(directory, /ldb$/)) await utimes(join(directory, file), 0, 0)
  const [file] = (await filesOf(directory, /ldb$/)) as [string]
  // Of all that is in a table LevelDB needs the filter least: the database opens.
  const bytes = await readFile(join(directory, file))
  const flipped = (at: number): Buffer => {
    const copy = Buffer.from(bytes)
    copy[at] = (copy[at] as number) ^ 1
    return copy
  }
  let at = bytes.length - 49
  while (tableFaults(flipped(at))[0]?.what !== 'filter') at--
  await writeFile(join(directory, file), flipped(at))
  await utimes(join(directory, file), 0, 0)
  let damage: string | undefined
  let onEnd: (message: string) => void = () => {}
  const found = new Promise<void>((resolve) => {
    onEnd = (message) => {
      damage = message
      resolve()
    }
  })
  const store = await stores.open({ directory, openEngine: openLevelDb, scrubFirstMs: 0, onEnd })
  await found
  expect(damage).toMatch(/^the database is damaged: 0000..\.ldb: the filter at offset \d+ fails its checksum$/)
  expect([store.upkeep.probe(), store.upkeep.fault]).toEqual([false, damage])
  for (const call of [
    () => store.get({ key: utf8('key/003') }),
    () => store.scan({ ts: 55, limit: 1 }),
    () => write(store, 70, 71, [put('new')]),
    () => store.prewrite(prewriteOf(80, [put('new')], { tryOnePc: true })),
  ])
    expect((await failureOf(call() as Promise<unknown>)).message).toBe(damage)

  vi.spyOn(store.system, 'list').mockResolvedValue(new Map()) // Read before the server serves anything.
  vi.spyOn(store, 'scan').mockResolvedValueOnce({ pairs: [] })
  const { app } = await serve(store, directory)
  const ready = await app.inject('/readyz')
  expect([ready.statusCode, ready.json().detail]).toEqual([503, damage])
  expect((await app.inject('/v1/status')).json()).toMatchObject({ writable: false, fault: damage })
  await app.close()
})

test('a table that was deleted under a running server is missed', async () => {
  const directory = await copyOf(await original)
  expect(await scrub(directory, async () => {})).toBeUndefined()
  const [file] = (await filesOf(directory, /ldb$/)) as [string]
  await rm(join(directory, file))
  expect(await scrub(directory, async () => {})).toBe(`${file}: it is missing`)
})

test('half a table, left by a compaction that a full disk ended, is no damage', async () => {
  const directory = await copyOf(await original)
  const [file] = (await filesOf(directory, /ldb$/)) as [string]
  const half = (await readFile(join(directory, file))).subarray(0, 500)
  const left = join(directory, '999999.ldb')
  await writeFile(left, half)
  await utimes(left, 0, 0)
  expect(await scrub(directory, async () => {})).toBeUndefined()
  await writeFile(join(directory, file), half)
  await utimes(join(directory, file), 0, 0)
  expect(await scrub(directory, async () => {})).toContain(file)
})

describe('without a look at the files', () => {
  /** As where a compaction put a new checksum on a damaged block. */
  async function changed(directory: string, change: (key: Buffer, value: Buffer) => void): Promise<void> {
    const engine = await openLevelDb(directory)
    for (const [key, value] of await entriesOfEngine(engine)) {
      const before = Buffer.concat([key, value])
      const bytes = Buffer.from(before)
      change(bytes.subarray(0, key.length), bytes.subarray(key.length))
      if (bytes.equals(before)) continue
      const ops: EngineOp[] = [
        { type: 'del', key },
        { type: 'put', key: bytes.subarray(0, key.length), value: bytes.subarray(key.length) },
      ]
      await engine.write(ops, true)
    }
    await engine.close()
  }

  test('a damaged value is refused by its name, on every way to it', async () => {
    const directory = await copyOf(await original)
    const target = [newestKey(utf8('key/003')), valueKey(utf8('key/007'), 48)]
    await changed(directory, (key, value) => {
      if (target.some((one) => one.equals(key))) value[9] = (value[9] as number) ^ 1
    })
    const store = await stores.open({ directory })
    const { message } = await failureOf(store.get({ key: utf8('key/003') }))
    expect(message).toBe('the database is damaged: the newest record of "key/003" fails its checksum')
    const long = await failureOf(store.get({ key: utf8('key/007') }))
    expect(long.message).toBe('the database is damaged: the value of "key/007" written at 48 fails its checksum')
    const lock = { keys: [utf8('key/003')], primary: utf8('key/003'), startTs: 70, forUpdateTs: 70, lockTtl: 1000 }
    for (const call of [
      () => store.batchGet({ keys: ['key/001', 'key/003'].map(utf8) }),
      () => store.scan({ ts: 55, limit: 100 }),
      () => store.scan({ ts: 55, limit: 200, reverse: true, keyOnly: true }),
      () => store.mvccGetByKey({ key: utf8('key/007') }),
      () => store.acquirePessimisticLock({ ...lock, keys: [utf8('key/007')], waitTimeout: -1, returnValues: true }),
    ])
      expect(await codeOf(call())).toBe('storage_unavailable')
    expect(await readOne(store, 'key/004')).toBe(truth.get('key/004 at 55'))
    await store.close()
    expect((await findingsOf(directory)).sort()).toEqual([
      'the newest record of "key/003" fails its checksum',
      'the newest record of "key/007" is not its put record at 40',
      'the put record of "key/007" at 50 has lost its value, written at 48',
      'the value of "key/007" written at 48 fails its checksum',
    ])
    await expectRepaired(directory)
  })

  test.each([
    ['a lock', lockKey(utf8('locked/1'))],
    ['the oracle’s mark', META_MARK],
    ['the format', META_FORMAT],
  ])('%s that is damaged refuses the start', async (_, target) => {
    const directory = await copyOf(await original)
    await changed(directory, (key, value) => {
      if (target.equals(key)) value[1] = (value[1] as number) ^ 1
    })
    expect(await startOutcome(directory)).toBe('refused')
    expect((await findingsOf(directory)).length).toBeGreaterThan(0)
    await expectRepaired(directory)
  })

  test('a damaged key is found by a scan, and by the check', async () => {
    const directory = await copyOf(await original)
    await changed(directory, (key) => {
      if (key.equals(newestKey(utf8('key/003')))) key[3] = (key[3] as number) ^ 1
    })
    const store = await stores.open({ directory })
    expect(await codeOf(store.scan({ ts: 55, limit: 1000 }))).toBe('storage_unavailable')
    await store.close()
    expect((await findingsOf(directory)).length).toBeGreaterThan(0)
    await expectRepaired(directory)
  })
})
