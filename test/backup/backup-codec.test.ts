import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type BackupBlock, decodeBackup } from '../../src/backup/backup-decoder.js'
import { BackupEncoder } from '../../src/backup/backup-encoder.js'
import { type BackupEntry, BackupError, type BackupHeader, type BackupPair } from '../../src/backup/backup-format.js'
import { RunningSums } from '../../src/backup/running-sums.js'
import { reservedKey } from '../../src/percolator/codec/reserved-key.js'

const HEADER: BackupHeader = { id: '0123456789abcdef0123456789abcdef', ts: 2 ** 52 + 1, perkv: '0.0.0-test' }

const pairs = fc
  .uniqueArray(
    fc.record({
      key: fc.uint8Array({ minLength: 1, maxLength: 9 }),
      value: fc.uint8Array({ maxLength: 20 }),
      commitTs: fc.integer({ min: 2, max: HEADER.ts }),
      expireTs: fc.option(fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }), { nil: undefined }),
    }),
    { selector: ({ key }) => Buffer.from(key).toString('hex'), maxLength: 12 },
  )
  .map((some) => some.sort((a, b) => Buffer.compare(a.key, b.key)))
const perBlock = fc.integer({ min: 1, max: 5 })
const chunkBytes = fc.integer({ min: 1, max: 70 })

/** In order, with where each ends. */
function encoded(some: readonly BackupPair[], blockPairs: number, header = HEADER): { file: Buffer; ends: number[] } {
  const encoder = new BackupEncoder()
  const parts = [encoder.begin(header)]
  for (let from = 0; from < some.length; from += blockPairs)
    parts.push(encoder.data(some.slice(from, from + blockPairs)))
  parts.push(encoder.end())
  let length = 0
  return { file: Buffer.concat(parts), ends: parts.map((part) => (length += part.length)) }
}

async function* inChunks(file: Buffer, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < file.length; at += size) yield file.subarray(at, at + size)
}

async function decoded(file: Buffer, size = 64): Promise<BackupBlock[]> {
  const blocks: BackupBlock[] = []
  for await (const block of decodeBackup(inChunks(file, size))) blocks.push(block)
  return blocks
}

function pairsOf(blocks: readonly BackupBlock[]): BackupPair[] {
  return blocks.flatMap((block) => (block.type === 'data' ? block.pairs : [])).map(plain)
}
const plain = ({ key, value, commitTs, expireTs }: BackupEntry): BackupPair => ({
  key: new Uint8Array(key),
  value: new Uint8Array(value ?? []),
  commitTs,
  expireTs,
})

/** Why it is refused; undefined when it is not. */
async function refusal(file: Buffer): Promise<BackupError['reason'] | undefined> {
  try {
    await decoded(file)
  } catch (error) {
    if (error instanceof BackupError) return error.reason
    throw error
  }
  return undefined
}

describe('a backup', () => {
  test('decodes to what was encoded, however it comes in', async () => {
    await fc.assert(
      fc.asyncProperty(pairs, perBlock, chunkBytes, async (some, blockPairs, size) => {
        const blocks = await decoded(encoded(some, blockPairs).file, size)
        expect(blocks[0]).toEqual({ type: 'header', header: HEADER, isCurrent: true })
        expect(pairsOf(blocks)).toEqual(some)
        const bytes = some.reduce((sum, { key, value }) => sum + key.length + value.length, 0)
        expect(blocks.at(-1)).toEqual({ type: 'end', totals: { pairs: some.length, bytes } })
      }),
    )
  })

  test('is refused with any byte changed, and hands out nothing that was', async () => {
    await fc.assert(
      fc.asyncProperty(pairs, perBlock, fc.nat(), fc.integer({ min: 1, max: 255 }), async (some, n, at, flip) => {
        const { file } = encoded(some, n)
        const index = at % file.length
        file[index] = (file[index] as number) ^ flip
        const seen: BackupPair[] = []
        const reading = async (): Promise<void> => {
          for await (const block of decodeBackup(inChunks(file, 64))) seen.push(...pairsOf([block]))
        }
        await expect(reading()).rejects.toThrow(BackupError)
        expect(seen).toEqual(some.slice(0, seen.length))
      }),
      { numRuns: 300 },
    )
  })

  test('is cut off wherever it ends early, and the sums go as far as its last whole block', async () => {
    const some = Array.from({ length: 7 }, (_, i) => ({ key: Buffer.of(i), value: Buffer.alloc(i), commitTs: i + 2 }))
    const { file, ends } = encoded(some, 2)
    for (let length = 0; length < file.length; length++) {
      const sums = new RunningSums()
      const reading = async (): Promise<void> => {
        for await (const _ of decodeBackup(inChunks(file.subarray(0, length), 64), { sums }));
      }
      await expect(reading()).rejects.toMatchObject({ reason: 'cut_off' })
      const whole = ends.findLast((end) => end <= length)
      if (whole !== undefined) expect(sums.length).toBe(whole)
    }
  })

  test('continued by another encoder is the same, byte for byte', async () => {
    await fc.assert(
      fc.asyncProperty(pairs, perBlock, fc.nat(), async (some, n, at) => {
        const { file, ends } = encoded(some, n)
        const cut = (ends[0] as number) + (at % (file.length - (ends[0] as number)))
        const sums = new RunningSums()
        const reading = async (): Promise<void> => {
          for await (const _ of decodeBackup(inChunks(file.subarray(0, cut), 64), { sums }));
        }
        await expect(reading()).rejects.toThrow(BackupError)
        const encoder = new BackupEncoder(sums)
        const parts = [file.subarray(0, sums.length)]
        for (let from = sums.pairs; from < some.length; from += n) parts.push(encoder.data(some.slice(from, from + n)))
        expect(Buffer.concat([...parts, encoder.end()])).toEqual(file)
      }),
    )
  })

  test('with blocks left out, doubled, in another order, or of another backup', async () => {
    const some = Array.from({ length: 6 }, (_, i) => ({ key: Buffer.of(i), value: Buffer.of(i), commitTs: 5 }))
    const { file, ends } = encoded(some, 2)
    const parts = ends.map((end, i) => file.subarray(ends[i - 1] ?? 0, end))
    const [head, a, b, c, end] = parts as [Buffer, Buffer, Buffer, Buffer, Buffer]
    const other = encoded(some, 2, { ...HEADER, ts: 6 })
    const foreign = other.file.subarray(other.ends[1], other.ends[2])
    for (const wrong of [
      [head, a, c, end],
      [head, a, a, b, c, end],
      [head, b, a, c, end],
      [head, a, foreign, c, end],
      [head, a, b, c, end, Buffer.of(0)],
      [head, head, a, b, c, end],
      [a, b, c, end],
    ])
      expect(await refusal(Buffer.concat(wrong))).toBe('damaged')
    expect(await refusal(Buffer.concat([head, a, b, c, end]))).toBeUndefined()
  })

  test('with pairs that no snapshot has', async () => {
    const pair = { key: Buffer.of(1), value: Buffer.of(), commitTs: 5 }
    for (const some of [
      [{ ...pair, commitTs: HEADER.ts + 1 }],
      [{ ...pair, commitTs: 1 }],
      [{ ...pair, key: Buffer.of() }],
      [pair, pair],
      [pair, { ...pair, key: Buffer.of(0, 255) }],
    ])
      expect(await refusal(encoded(some, 9).file)).toBe('damaged')
  })

  test("of keys that are the server's own now", async () => {
    const pair = { key: reservedKey(Buffer.from('x')), value: Buffer.of(1), commitTs: 5, expireTs: undefined }
    expect(await refusal(encoded([pair], 1).file)).toBe('unsupported')
  })

  test('of another version, and what is no backup', async () => {
    const { file } = encoded([], 1)
    file.writeUInt32BE(6, 8)
    expect(await refusal(file)).toBe('unsupported')
    expect(await refusal(Buffer.from('{"key": "a", "value": "b"}\n'))).toBe('damaged')
  })

  test('with a block over the receiver’s limit, before it is read', async () => {
    const { file } = encoded([{ key: Buffer.of(1), value: Buffer.alloc(5000), commitTs: 5 }], 1)
    const reading = async (): Promise<void> => {
      for await (const _ of decodeBackup(inChunks(file.subarray(0, 1000), 64), { blockBytesMax: 4000 }));
    }
    await expect(reading()).rejects.toMatchObject({ reason: 'too_large' })
  })

  test('of one pair has the documented bytes', async () => {
    const header = { id: HEADER.id, ts: 3676652170995713, perkv: '0.3.0' }
    const pair = { key: Buffer.from('hello'), value: Buffer.from('world'), commitTs: 3676652170915841 }
    const [headerBody, endBody] = [
      '{"id":"0123456789abcdef0123456789abcdef","ts":3676652170995713,"perkv":"0.3.0"}',
      '{"pairs":1,"bytes":10,"sha256":"68eb3d321e4a99975433223c512f8ef681616f419b3813dfd8704ad83fcdbd9c"}',
    ].map((text) => Buffer.from(text).toString('hex'))
    const hex = `5065724b5662616b 00000003
      48 0000004f 827a8961 ${headerBody}
      44 00000020 8429e191 800d0fe54a9c3001 0005 00000005 000d1001e6d43001 68656c6c6f 776f726c64
      45 00000062 0589305d ${endBody}`
    const { file } = encoded([{ ...pair, expireTs: 3676775050915841 }], 1, header)
    expect(file.toString('hex')).toBe(hex.replaceAll(/\s/g, ''))
  })

  test('of version 1, before pairs could expire, is still read', async () => {
    const [headerBody, endBody] = [
      '{"id":"0123456789abcdef0123456789abcdef","ts":3676652170995713,"perkv":"0.1.0"}',
      '{"pairs":1,"bytes":10,"sha256":"d3970fe5a2fb9a776b4857974c3cf908fc223ddd0ca6de15af4d71b1460fb97c"}',
    ].map((text) => Buffer.from(text).toString('hex'))
    const hex = `5065724b5662616b 00000001
      48 0000004f efb96303 ${headerBody}
      44 00000018 da3468e0 000d0fe54a9c3001 0005 00000005 68656c6c6f 776f726c64
      45 00000062 8326e0a9 ${endBody}`
    const blocks = await decoded(Buffer.from(hex.replaceAll(/\s/g, ''), 'hex'))
    expect(blocks[0]).toMatchObject({ isCurrent: false })
    const pair = { key: Buffer.from('hello'), value: Buffer.from('world'), commitTs: 3676652170915841 }
    expect(pairsOf(blocks)).toEqual([plain(pair)])
  })

  test('of version 1 whose pair has the mark of an expiry', async () => {
    const { file } = encoded([{ key: Buffer.of(1), value: Buffer.of(), commitTs: 5, expireTs: 9 }], 1)
    const old = Buffer.from(file)
    old.writeUInt32BE(1, 8)
    expect(await refusal(old)).toBe('damaged')
  })
})
