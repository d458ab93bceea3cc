import { copyFile, readdir, readFile, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { KvError } from '../../../src/percolator/errors.js'
import { checkDirectory } from '../../../src/store/leveldb/check-directory.js'
import { DataDirectoryError } from '../../../src/store/leveldb/data-directory-error.js'
import { openLevelDb } from '../../../src/store/leveldb/engine.js'
import { repairDirectory } from '../../../src/store/leveldb/repair-directory.js'
import type { Store } from '../../../src/store/store.js'
import { Random } from '../../anomalies/random.js'
import { del, prewriteOf, put, testStores, text, utf8, write } from '../support.js'

const stores = testStores()

/** Bytes flipped, each in a database of its own. */
const FLIPS = Number(process.env['PERKV_FLIPS'] ?? 12)
const SEED = Number(process.env['PERKV_FLIPS_SEED'] ?? 1)

const KEYS = Array.from({ length: 120 }, (_, i) => `key/${String(i).padStart(3, '0')}`)
const TIMES = [15, 25, 35, 45, 55]
const ABSENT = '(absent)'

/** What each key is at each of TIMES; `undefined` where a lock or damage stands in the way. */
type Reads = Map<string, string | undefined>

async function readAll(store: Store): Promise<Reads> {
  const reads: Reads = new Map()
  for (const key of KEYS) for (const ts of TIMES) reads.set(`${key} at ${ts}`, await readOne(store, key, ts))
  return reads
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

/** Tables on two levels and a log; values short and long, deletions, rollbacks, locks, outcomes. */
async function filled(): Promise<{ directory: string; truth: Reads }> {
  const directory = await stores.directory()
  for (const [round, ts] of [10, 20, 30, 40, 50].entries()) {
    const store = await stores.open({ directory, openEngine: openLevelDb })
    const keys = KEYS.filter((_, i) => (i + round) % 3 !== 0)
    const value = (key: string): string => `${key} written at ${ts} `.repeat(key.endsWith('7') ? 30 : 2)
    const mutations = keys.map((key, i) => (i % 7 === round ? del(key) : put(key, value(key))))
    for (let from = 0; from < mutations.length; from += 10)
      await write(store, ts - 2, ts, mutations.slice(from, from + 10))
    await store.rollback({ keys: KEYS.slice(0, 5).map(utf8), startTs: ts + 2 })
    await store.putOutcome({ key: utf8(`request ${round}`), record: Buffer.from('93a16101a162', 'hex') })
    if (round === 4) await store.prewrite(prewriteOf(60, [put('locked/1', 'x'.repeat(500)), put('locked/2', 'y')]))
    await store.close()
    if (round !== 2) continue
    const engine = await openLevelDb(directory)
    await engine.compactRange(Buffer.alloc(0), Buffer.alloc(8, 0xff))
    await engine.close()
  }
  const store = await stores.open({ directory: await copyOf(directory), openEngine: openLevelDb })
  const truth = await readAll(store)
  await store.close()
  return { directory, truth }
}

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

async function problemsOf(directory: string): Promise<string[]> {
  const problems: string[] = []
  const { files, isSound } = await checkDirectory(directory, {
    onProblem: ({ message }) => void problems.push(message),
  })
  const messages = [...files.faults.map(({ message }) => message), ...problems]
  expect(isSound).toBe(messages.length === 0)
  return messages
}

/** Every read is the truth or refused, or the start is. */
async function startOutcome(directory: string, truth: Reads): Promise<'refused' | 'right'> {
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
async function expectRepaired(directory: string, truth: Reads): Promise<{ lines: string[]; changed: string[] }> {
  const lines: string[] = []
  const options = { say: (line: string) => void lines.push(line), isDryRun: false, keepsCopy: false }
  const repaired = await repairDirectory(directory, options)
  expect(lines.filter((line) => line.startsWith('still'))).toEqual([])
  expect(repaired.isSound).toBe(true)
  expect(repaired.problems).toBeGreaterThan(0)
  expect(await problemsOf(directory)).toEqual([])
  expect(await repairDirectory(directory, options)).toEqual({ isSound: true, problems: 0, losses: 0 })
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
    const { directory, truth } = await filled()
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
        const outcome = await startOutcome(await copyOf(damaged), truth)
        const problems = await problemsOf(await copyOf(damaged))
        expect(outcome).toBe(problems.length > 0 ? 'refused' : 'right')
        const { changed } = problems.length > 0 ? await expectRepaired(damaged, truth) : { changed: [] }
        const kind = `${/[a-z]+$/i.exec(file.replace(/-\d+$/, ''))?.[0]}: ${outcome}${problems.length === 0 ? '' : changed.length > 0 ? ', repaired with losses' : ', repaired'}`
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
    ['an empty CURRENT', /^CURRENT$/, (path) => truncate(path, 0)],
  ]
  test.each(CASES)('%s', async (_, pattern, damage) => {
    const { directory, truth } = await filled()
    const [file] = await filesOf(directory, pattern)
    await damage(join(directory, file as string))
    expect(await startOutcome(await copyOf(directory), truth)).toBe('refused')
    expect(await problemsOf(directory)).toHaveLength(1)
    await expectRepaired(directory, truth)
  })
})
