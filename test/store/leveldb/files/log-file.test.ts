import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { crc32c, maskedCrc } from '../../../../src/store/leveldb/files/crc32c.js'
import { encodeLog, readLog } from '../../../../src/store/leveldb/files/log-file.js'
import { batchKeys } from '../../../../src/store/leveldb/files/write-batch.js'
import { testStores } from '../../support.js'

const stores = testStores()
const BLOCK = 32 * 1024

test('CRC-32C, RFC 3720 B.4, in one piece and in two', () => {
  const bytes = Buffer.from(Array.from({ length: 32 }, (_, i) => i))
  expect(crc32c(Buffer.alloc(32))).toBe(0x8a9136aa)
  expect(crc32c(bytes)).toBe(0x46dd794e)
  expect(crc32c(bytes, 13, 32, crc32c(bytes, 0, 13))).toBe(0x46dd794e)
  expect(maskedCrc(0)).toBe(0xa282ead8)
})

/** A log that LevelDB wrote: one batch a key, of `sizes`. */
async function logOf(sizes: readonly number[]): Promise<Buffer> {
  const directory = await stores.directory()
  const engine = await openLevelDb(directory)
  for (const [i, size] of sizes.entries())
    await engine.write([{ type: 'put', key: Buffer.from(`k${i}`), value: Buffer.alloc(size, i + 1) }], false)
  await engine.close()
  const [log] = (await readdir(directory)).filter((file) => file.endsWith('.log'))
  return readFile(join(directory, log as string))
}

const keysIn = (records: ReturnType<typeof readLog>['records']): string[] =>
  records.flatMap(({ payload }) => batchKeys(payload)).map(String)

describe('a log', () => {
  // 70 000 spans three blocks; the sizes before it end a block with exactly 7, 6 and 0 bytes left.
  const HEADS = [7, 6, 0].map((left) => BLOCK - left - 7 - 12 - 1 - 1 - 2 - 3)
  test.each(HEADS)('of records across blocks, the first of %i bytes', { tags: ['long'] }, async (head) => {
    const bytes = await logOf([head, 10, 70_000, 10])
    const { records, soundEnd, after } = readLog(bytes)
    expect(encodeLog(records.map(({ payload }) => payload))).toEqual(bytes)
    expect(keysIn(records)).toEqual(['k0', 'k1', 'k2', 'k3'])
    expect([soundEnd, after]).toEqual([bytes.length, []])
  })

  test('cut at any byte is a torn end', async () => {
    const bytes = await logOf([20, 40_000, 20])
    for (let length = 0; length < bytes.length; length += length < 200 || length > bytes.length - 200 ? 1 : 3989) {
      const { records, soundEnd, after } = readLog(bytes.subarray(0, length))
      expect(after).toEqual([])
      expect(soundEnd).toBeLessThanOrEqual(length)
      expect(keysIn(records)).toEqual(['k0', 'k1', 'k2'].slice(0, records.length))
    }
  })

  test('with zeros or garbage behind it is a torn end', async () => {
    const bytes = await logOf([20, 20])
    for (const rest of [Buffer.alloc(100_000), Buffer.alloc(5000, 0x81)]) {
      const { records, soundEnd, after } = readLog(Buffer.concat([bytes, rest]))
      expect([records.length, soundEnd, after]).toEqual([2, bytes.length, []])
    }
  })

  test('with any bit flipped before its last record is damaged, and what stands behind is found', {
    tags: ['long'],
  }, async () => {
    const bytes = await logOf([20, 40_000, 20, 20])
    const ends = readLog(bytes).records.map(({ offset }) => offset)
    const last = ends.at(-1) as number
    for (let at = 0; at < last; at += at < 100 || at > last - 60 ? 1 : 4001) {
      const flipped = Buffer.from(bytes)
      flipped[at] = (flipped[at] as number) ^ (1 << (at % 8))
      const { records, soundEnd, after } = readLog(flipped)
      const isDamaged = ends.findIndex((offset, i) => at >= offset && at < (ends[i + 1] ?? bytes.length))
      expect([at, records.length, soundEnd]).toEqual([at, isDamaged, ends[isDamaged]])
      expect(keysIn(after)).toEqual(['k1', 'k2', 'k3'].slice(isDamaged))
    }
  })

  test('whose last record is damaged can’t be told from one that is torn', async () => {
    const bytes = await logOf([20, 20])
    bytes[bytes.length - 1] = 0
    expect(readLog(bytes)).toMatchObject({ records: [{}], after: [] })
  })
})
