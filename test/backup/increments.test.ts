import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { decodeBackup } from '../../src/backup/backup-decoder.js'
import { BackupEncoder } from '../../src/backup/backup-encoder.js'
import type { BackupEntry, BackupHeader, RemovedRange } from '../../src/backup/backup-format.js'
import { mergedEntries } from '../../src/backup/merged-entries.js'
import { SortedRuns } from '../../src/backup/sorted-runs.js'
import { hasExpired } from '../../src/percolator/write.js'

const ID = '0123456789abcdef0123456789abcdef'
const utf8 = (text: string): Uint8Array => Buffer.from(text)
const key = fc.constantFrom('a', 'b', 'c', 'cc', 'd', 'e')
const change = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      op: fc.constant('put' as const),
      key,
      value: fc.string({ maxLength: 9 }),
      /** After the put; none or less: the version is never visible. */
      lasts: fc.option(fc.integer({ min: -2, max: 15 }), { nil: undefined }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ op: fc.constant('delete' as const), key }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('delete_range' as const), key, end: key }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('backup' as const) }) },
)

interface Version {
  readonly value: string
  readonly commitTs: number
  readonly expireTs: number | undefined
}

test('a full backup and its increments have the state of every moment, whether changes fit in memory or not', {
  tags: ['long'],
}, async () => {
  const directory = await mkdtemp(join(tmpdir(), 'perkv-increments-'))
  await fc.assert(
    fc.asyncProperty(fc.array(change, { maxLength: 40 }), fc.constantFrom(0, 700, 1e6), async (changes, bytesMax) => {
      const state = new Map<string, Version>()
      const files: Buffer[] = []
      const moments = new Map<number, readonly [string, Version][]>()
      let runs = new SortedRuns(join(directory, 'runs'), bytesMax)
      let isFull = true
      let baseTs = 2
      let ts = 10
      for (const one of [...changes, { op: 'backup' } as const]) {
        ts++
        if (one.op === 'put') {
          const version = {
            value: one.value,
            commitTs: ts,
            expireTs: one.lasts === undefined ? undefined : ts + one.lasts,
          }
          state.set(one.key, version)
          await runs.add({ ...version, key: utf8(one.key), value: utf8(one.value) })
        } else if (one.op === 'delete') {
          state.delete(one.key)
          await runs.add({ key: utf8(one.key), commitTs: ts })
        } else if (one.op === 'delete_range') {
          for (const present of [...state.keys()]) if (present >= one.key && present < one.end) state.delete(present)
          runs.removed.push({ start: utf8(one.key), end: utf8(one.end), ts })
        } else {
          const base = isFull ? undefined : { id: ID, ts: baseTs }
          const entries = isFull ? fullOf(state, ts) : runs.entries()
          files.push(await fileOf({ id: ID, ts, perkv: 'test', base, removed: runs.removed }, entries))
          await runs.close()
          runs = new SortedRuns(join(directory, 'runs'), bytesMax)
          isFull = false
          baseTs = ts
        }
        if (!isFull) moments.set(ts, sorted(state))
      }
      await runs.close()
      for (const [at, then] of moments) {
        const found: [string, Version][] = []
        for await (const { key, value, commitTs, expireTs } of mergedEntries(await Promise.all(files.map(partOf)), at))
          if (value !== undefined)
            found.push([Buffer.from(key).toString(), { value: Buffer.from(value).toString(), commitTs, expireTs }])
        // With the same expire_ts it is also the same at each later timestamp.
        expect(found.filter(isThere(at))).toEqual(then.filter(isThere(at)))
      }
    }),
    { numRuns: 150 },
  )
  await rm(directory, { recursive: true })
})

test('a deletion in a full backup, a version that the base has, and a base above the ts are damage', async () => {
  const full: BackupHeader = { id: ID, ts: 100, perkv: 'test' }
  const of = (ts: number): BackupHeader => ({ ...full, base: { id: ID, ts }, removed: [] })
  const deleted: BackupEntry = { key: utf8('k'), commitTs: 20 }
  await expect(decoded(await fileOf(of(10), [deleted]))).resolves.toEqual([deleted])
  await expect(decoded(await fileOf(full, [deleted]))).rejects.toThrow(/the pairs make no sense/)
  await expect(decoded(await fileOf(of(20), [deleted]))).rejects.toThrow(/the pairs make no sense/)
  await expect(decoded(await fileOf(of(101), []))).rejects.toThrow(/no base/)
  const versions = [30, 20].map((commitTs) => ({ key: utf8('k'), commitTs }))
  await expect(decoded(await fileOf(of(10), versions))).resolves.toEqual(versions)
  await expect(decoded(await fileOf(of(10), versions.toReversed()))).rejects.toThrow(/the pairs make no sense/)
  await expect(decoded(await fileOf(of(10), [deleted, deleted]))).rejects.toThrow(/the pairs make no sense/)
})

function fullOf(state: ReadonlyMap<string, Version>, ts: number): BackupEntry[] {
  return sorted(state)
    .filter(isThere(ts))
    .map(([key, version]) => ({ ...version, key: utf8(key), value: utf8(version.value) }))
}

function sorted(state: ReadonlyMap<string, Version>): [key: string, version: Version][] {
  return [...state].sort(([a], [b]) => (a < b ? -1 : 1))
}

function isThere(ts: number): (one: readonly [key: string, version: Version]) => boolean {
  return ([, { expireTs }]) => !hasExpired(expireTs ?? 0, ts)
}

async function fileOf(
  header: BackupHeader,
  entries: Iterable<BackupEntry> | AsyncIterable<BackupEntry>,
): Promise<Buffer> {
  const encoder = new BackupEncoder()
  const pieces = [encoder.begin(header)]
  for await (const entry of entries) {
    const block = encoder.add(entry)
    if (block !== undefined) pieces.push(block)
  }
  return Buffer.concat([...pieces, encoder.end()])
}

async function partOf(
  file: Buffer,
): Promise<{ entries: AsyncGenerator<BackupEntry>; removed: readonly RemovedRange[] }> {
  let removed: readonly RemovedRange[] = []
  for await (const block of decodeBackup(each([file])))
    if (block.type === 'header') removed = block.header.removed ?? []
  return { entries: each(await decoded(file)), removed }
}

async function decoded(file: Buffer): Promise<BackupEntry[]> {
  const entries: BackupEntry[] = []
  for await (const block of decodeBackup(each([file]))) if (block.type === 'data') entries.push(...block.pairs)
  return entries.map(({ key, value, commitTs, expireTs }) => ({
    key: Buffer.from(key),
    ...(value && { value: Buffer.from(value) }),
    commitTs,
    ...(expireTs !== undefined && { expireTs }),
  }))
}

async function* each<T>(all: readonly T[]): AsyncGenerator<T> {
  yield* all
}
