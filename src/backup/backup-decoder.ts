import { asBuffer } from '../bytes/key-text.js'
import { isReserved } from '../bytes/reserved-keys.js'
import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import {
  BACKUP_MAGIC,
  BACKUP_VERSION,
  type BackupBase,
  type BackupEntry,
  BackupError,
  type BackupHeader,
  type BackupTotals,
  BLOCK_BYTES_MAX,
  BLOCK_HEAD_BYTES,
  BLOCK_TYPE_BYTE,
  INCREMENT_VERSION,
  OLD_BACKUP_VERSION,
  PREAMBLE_BYTES,
  type RemovedRange,
} from './backup-format.js'
import { decodePairs } from './pair-records.js'
import { RunningSums } from './running-sums.js'

export type BackupBlock =
  /** `isCurrent`: the backup has the version that is written today. */
  | { readonly type: 'header'; readonly header: BackupHeader; readonly isCurrent: boolean }
  | { readonly type: 'data'; readonly pairs: readonly BackupEntry[]; readonly body: Buffer }
  | { readonly type: 'end'; readonly totals: BackupTotals }

export interface DecodeOptions {
  /** A longer block is refused before it is read. */
  readonly blockBytesMax?: number
  /** Updated with every block that is yielded, except the end. */
  readonly sums?: RunningSums
}

/**
 * Yields the blocks of a backup, each verified: one header, data blocks, one end. Holds one block in memory at a time.
 * The backup is complete only when the end was yielded and the generator returned.
 * @throws BackupError, and errors of the source.
 */
export async function* decodeBackup(
  source: AsyncIterable<Uint8Array>,
  { blockBytesMax = BLOCK_BYTES_MAX, sums = new RunningSums() }: DecodeOptions = {},
): AsyncGenerator<BackupBlock, void, undefined> {
  const bytes = new ByteReader(source)
  try {
    const preamble = await bytes.take(PREAMBLE_BYTES)
    const version = versionIn(preamble)
    sums.preamble(preamble)
    const { body } = await readBlock(bytes, sums, blockBytesMax, ['header'])
    const header = parseHeader(body, version, damagedAt(0))
    const isCurrent = version === BACKUP_VERSION || version === INCREMENT_VERSION
    yield { type: 'header', header, isCurrent }
    const bounds = {
      ts: header.ts,
      baseTs: header.base?.ts,
      mayExpire: version >= BACKUP_VERSION,
      mayRepeat: version === INCREMENT_VERSION,
    }
    for (;;) {
      const damaged = damagedAt(sums.length)
      const { type, head, body } = await readBlock(bytes, sums, blockBytesMax, ['data', 'end'])
      if (type === 'end') {
        const totals = parseEnd(body, sums, damaged)
        if (!(await bytes.isAtEnd())) throw damaged('bytes follow after the end')
        return yield { type: 'end', totals }
      }
      const pairs = decodePairs(body, sums, bounds)
      if (pairs === undefined) throw damaged('the pairs make no sense')
      if (pairs.some(({ key }) => isReserved(key)))
        throw new BackupError(
          'unsupported',
          'the backup has keys that begin with 00 00 and perkv/, which are reserved now',
        )
      sums.block(head, body)
      sums.counted(pairs)
      yield { type: 'data', pairs, body }
    }
  } finally {
    await bytes.close()
  }
}

type Damaged = (what: string) => BackupError

function damagedAt(offset: number): Damaged {
  return (what) => new BackupError('damaged', `the backup is damaged at byte ${offset}: ${what}`)
}

function versionIn(preamble: Buffer): number {
  if (preamble.toString('latin1', 0, BACKUP_MAGIC.length) !== BACKUP_MAGIC)
    throw new BackupError('damaged', 'this is no PerKV backup')
  const version = preamble.readUInt32BE(BACKUP_MAGIC.length)
  if (version >= OLD_BACKUP_VERSION && version <= INCREMENT_VERSION) return version
  const detail = `the backup has version ${version}; this PerKV reads versions ${OLD_BACKUP_VERSION} to ${INCREMENT_VERSION}`
  throw new BackupError('unsupported', detail)
}

/** Adds a header to the sums at once. The caller adds data and the end after it has checked their contents. */
async function readBlock<const T extends 'header' | 'data' | 'end'>(
  bytes: ByteReader,
  sums: RunningSums,
  blockBytesMax: number,
  expected: readonly T[],
): Promise<{ readonly type: T; readonly head: Buffer; readonly body: Buffer }> {
  const damaged = damagedAt(sums.length)
  const head = await bytes.take(BLOCK_HEAD_BYTES)
  const type = expected.find((one) => BLOCK_TYPE_BYTE[one] === head[0])
  if (type === undefined) throw damaged(`no ${expected.join(' or ')} block begins here`)
  const length = head.readUInt32BE(1)
  if (length > BLOCK_BYTES_MAX) throw damaged(`a block of ${length} bytes`)
  if (length > blockBytesMax) {
    const detail = `a block at byte ${sums.length} has ${length} bytes, and ${blockBytesMax} are allowed: it is damaged, or its values are longer than this server's --value-bytes-max`
    throw new BackupError('too_large', detail)
  }
  const body = await bytes.take(length)
  if (!sums.headOf(type, body).equals(head)) throw damaged('the checksum does not match')
  if (type === 'header') sums.block(head, body)
  return { type, head, body }
}

function parseHeader(body: Buffer, version: number, damaged: Damaged): BackupHeader {
  const { id, ts, perkv, start, store, base, removed } = parseJson(body, damaged)
  if (!isId(id)) throw damaged('the header has no id')
  if (!isTs(ts)) throw damaged('the header has no ts')
  if (start !== undefined && typeof start !== 'string') throw damaged('the header has a bad start')
  if (store !== undefined && !isId(store)) throw damaged('the header has a bad store')
  const header = { id, ts, perkv: String(perkv), ...(store && { store }) }
  if (version === BACKUP_VERSION || version === OLD_BACKUP_VERSION)
    return start === undefined ? header : { ...header, start: Buffer.from(start, 'base64') }
  const parsed = parseBase(base)
  if (parsed === undefined || parsed.ts > ts) throw damaged('the header has no base')
  const ranges = Array.isArray(removed) ? removed.map((range) => parseRange(range, ts)) : [undefined]
  if (ranges.includes(undefined)) throw damaged('the header has bad removed ranges')
  return { ...header, base: parsed, removed: ranges as RemovedRange[] }
}

function parseBase(value: unknown): BackupBase | undefined {
  const { id, ts } = Object(value) as Record<string, unknown>
  return isId(id) && isTs(ts) ? { id, ts } : undefined
}

function parseRange(value: unknown, upTo: Timestamp): RemovedRange | undefined {
  const { start, end, ts } = Object(value) as Record<string, unknown>
  if (typeof start !== 'string' || typeof end !== 'string' || !isTs(ts) || ts > upTo) return undefined
  return { start: Buffer.from(start, 'base64'), end: Buffer.from(end, 'base64'), ts }
}

function isId(value: unknown): value is string {
  return typeof value === 'string' && /^[0-9a-f]{32}$/.test(value)
}

function isTs(value: unknown): value is Timestamp {
  return isCount(value) && value >= 1 && value < TIMESTAMP_MAX
}

function parseEnd(body: Buffer, sums: RunningSums, damaged: Damaged): BackupTotals {
  const { pairs, bytes, sha256 } = parseJson(body, damaged)
  if (pairs !== sums.pairs || bytes !== sums.bytes) throw damaged('the totals do not match')
  if (sha256 !== sums.digest()) throw damaged('the digest does not match')
  return { pairs: sums.pairs, bytes: sums.bytes }
}

function parseJson(body: Buffer, damaged: Damaged): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(body.toString('utf8'))
    if (typeof value === 'object' && value !== null) return value as Record<string, unknown>
  } catch {}
  throw damaged('no JSON object')
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

/** Reads a stream in pieces of a requested length. */
class ByteReader {
  readonly #source: AsyncIterator<Uint8Array>
  #chunks: Buffer[] = []
  #length = 0
  #taken = 0

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]()
  }

  async take(count: number): Promise<Buffer> {
    while (this.#length < count)
      if (!(await this.#pull()))
        throw new BackupError('cut_off', `the backup is cut off after ${this.#taken + this.#length} bytes`)
    const first = this.#chunks[0]
    const all = first !== undefined && first.length >= count ? first : Buffer.concat(this.#chunks)
    if (all !== first) this.#chunks = [all]
    if (all.length > count) this.#chunks[0] = all.subarray(count)
    else this.#chunks.shift()
    this.#length -= count
    this.#taken += count
    return all.subarray(0, count)
  }

  async isAtEnd(): Promise<boolean> {
    return this.#length === 0 && !(await this.#pull())
  }

  async close(): Promise<void> {
    await this.#source.return?.()
  }

  /** @returns false at the end of the stream. */
  async #pull(): Promise<boolean> {
    for (;;) {
      const { done, value } = await this.#source.next()
      if (done) return false
      if (value.length === 0) continue
      this.#chunks.push(asBuffer(value))
      this.#length += value.length
      return true
    }
  }
}
