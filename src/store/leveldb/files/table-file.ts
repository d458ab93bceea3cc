import { crc32c, maskedCrc } from './crc32c.js'
import { TAG_BYTES, userKey } from './internal-key.js'
import type { StoredRange } from './lost-records.js'
import { unsnappy } from './snappy.js'
import { ByteReader, varint } from './varint.js'

const FOOTER = 48
const MAGIC = Buffer.from('57fb808b247547db', 'hex')
/** Trailer of each block: compression type and CRC. */
const TRAILER = 5
const PLAIN = 0
const SNAPPY = 1

interface Handle {
  readonly offset: number
  /** Without the trailer. */
  readonly size: number
}

interface Entry {
  readonly key: Buffer
  readonly value: Buffer
}

export interface TableFault {
  readonly offset: number
  readonly what: 'data block' | 'index block' | 'filter' | 'footer'
}

interface Layout {
  readonly metaIndex: Handle
  readonly index: Handle
}

/** Checks every block of a `.ldb` file against its checksum, which LevelDB writes but does not verify. */
export function tableFaults(file: Buffer): TableFault[] {
  const layout = readFooter(file)
  if (layout === undefined) return [{ offset: Math.max(0, file.length - FOOTER), what: 'footer' }]
  const entries = entriesOf(file, layout.index)
  if (entries === undefined) return [{ offset: layout.index.offset, what: 'index block' }]
  const faults: TableFault[] = []
  for (const { value } of entries) {
    const handle = handleOf(value)
    if (handle === undefined) return [{ offset: layout.index.offset, what: 'index block' }]
    if (!isSound(file, handle)) faults.push({ offset: handle.offset, what: 'data block' })
  }
  const meta = entriesOf(file, layout.metaIndex)
  if (meta === undefined) faults.push({ offset: layout.metaIndex.offset, what: 'filter' })
  for (const { value } of meta ?? []) {
    const filter = handleOf(value)
    if (filter === undefined || !isSound(file, filter))
      faults.push({ offset: (filter ?? layout.metaIndex).offset, what: 'filter' })
  }
  return faults
}

/** @returns undefined when the table is damaged where the key would be. */
export function tableHas(file: Buffer, key: Buffer): boolean | undefined {
  const layout = readFooter(file)
  const index = layout && entriesOf(file, layout.index)
  if (index === undefined) return undefined
  for (const entry of index) {
    if (Buffer.compare(userKey(entry.key), key) < 0) continue
    const handle = handleOf(entry.value)
    const entries = handle && entriesOf(file, handle)
    if (entries === undefined) return undefined
    if (entries.some((record) => userKey(record.key).equals(key))) return true
    if (!userKey(entry.key).equals(key)) return false
  }
  return false
}

export interface MendedTable {
  readonly bytes: Buffer | undefined
  readonly lost: readonly StoredRange[]
}

/**
 * Makes a table from the sound blocks of a damaged one. The blocks stay in place, a new index leaves out the bad ones, and the
 * length stays the one in the MANIFEST. The filter is left out, because it may be made for records in bad blocks only.
 * @param size length in the MANIFEST.
 */
export function mendedTable(file: Buffer, size: number): MendedTable {
  const { kept, lost } = soundBlocks(file)
  if (kept.length === 0) return { bytes: undefined, lost: [{}] }
  const begin = Math.max(...kept.map(({ handle }) => handle.offset + handle.size + TRAILER))
  const metaIndex = blockOf([])
  const index = blockOf(kept.map(({ key, handle }) => ({ key, value: encodeHandle(handle) })))
  // Without room behind the blocks the table grows, and only LevelDB's own repair accepts that.
  const length = Math.max(size, begin + metaIndex.length + index.length + FOOTER)
  const mended = Buffer.alloc(length)
  file.copy(mended, 0, 0, begin)
  metaIndex.copy(mended, begin)
  index.copy(mended, begin + metaIndex.length)
  const footer = Buffer.concat([
    encodeHandle({ offset: begin, size: metaIndex.length - TRAILER }),
    encodeHandle({ offset: begin + metaIndex.length, size: index.length - TRAILER }),
  ])
  footer.copy(mended, length - FOOTER)
  MAGIC.copy(mended, length - MAGIC.length)
  return { bytes: mended, lost }
}

interface KeptBlock {
  /** At or above every key of the block, and below those of the next block. */
  readonly key: Buffer
  readonly handle: Handle
}

function soundBlocks(file: Buffer): { readonly kept: readonly KeptBlock[]; readonly lost: readonly StoredRange[] } {
  const layout = readFooter(file)
  const entries = layout && entriesOf(file, layout.index)
  const indexed = entries?.map(({ key, value }) => ({ key, handle: handleOf(value) }))
  if (!indexed?.every((block): block is KeptBlock => block.handle !== undefined)) {
    const kept = foundBlocks(file)
    const last = kept.at(-1)
    return { kept, lost: [last === undefined ? {} : { gte: after(last.key) }] }
  }
  const isKept = indexed.map(({ handle }) => isSound(file, handle))
  const lost = indexed.flatMap(({ key }, i) => {
    if (isKept[i]) return []
    const before = indexed[i - 1]
    return [{ gte: before && after(before.key), lte: userKey(key) }]
  })
  return { kept: indexed.filter((_, i) => isKept[i]), lost }
}

function after(internalKey: Buffer): Buffer {
  return Buffer.concat([userKey(internalKey), Buffer.of(0)])
}

/** Finds blocks without an index: blocks are adjacent, and each ends where a checksum matches. */
function foundBlocks(file: Buffer): KeptBlock[] {
  const blocks: KeptBlock[] = []
  for (let offset = 0; offset < file.length; ) {
    const handle = soundBlockAt(file, offset)
    const entries = handle && dataEntries(file, handle)
    const first = entries?.[0]
    const last = entries?.at(-1)
    const before = blocks.at(-1)
    if (handle === undefined || first === undefined || last === undefined) break
    if (before !== undefined && Buffer.compare(userKey(before.key), userKey(first.key)) > 0) break // This is an index block.
    blocks.push({ key: last.key, handle })
    offset = handle.offset + handle.size + TRAILER
  }
  return blocks
}

function soundBlockAt(file: Buffer, offset: number): Handle | undefined {
  let crc = 0
  for (let end = offset; end + TRAILER <= file.length; end++) {
    const type = file[end] as number
    crc = end === offset ? 0 : crc32c(file, end - 1, end, crc)
    if (type > SNAPPY || end === offset) continue
    if (maskedCrc(crc32c(file, end, end + 1, crc)) === file.readUInt32LE(end + 1)) return { offset, size: end - offset }
  }
  return undefined
}

/** @returns undefined when the block does not hold records. */
function dataEntries(file: Buffer, handle: Handle): Entry[] | undefined {
  const entries = entriesOf(file, handle)
  return entries?.every(({ key }) => key.length > TAG_BYTES && (key[key.length - TAG_BYTES] as number) <= 1)
    ? entries
    : undefined
}

function readFooter(file: Buffer): Layout | undefined {
  if (file.length < FOOTER || !file.subarray(-MAGIC.length).equals(MAGIC)) return undefined
  try {
    const reader = new ByteReader(file.subarray(file.length - FOOTER))
    const metaIndex = { offset: reader.varint(), size: reader.varint() }
    const index = { offset: reader.varint(), size: reader.varint() }
    return { metaIndex, index }
  } catch {
    return undefined
  }
}

function isSound(file: Buffer, { offset, size }: Handle): boolean {
  const end = offset + size
  if (end + TRAILER > file.length || (file[end] as number) > SNAPPY) return false
  return maskedCrc(crc32c(file, offset, end + 1)) === file.readUInt32LE(end + 1)
}

function entriesOf(file: Buffer, handle: Handle): Entry[] | undefined {
  if (!isSound(file, handle)) return undefined
  const { offset, size } = handle
  try {
    const stored = file.subarray(offset, offset + size)
    const block = file[offset + size] === SNAPPY ? unsnappy(stored) : stored
    const restarts = block.readUInt32LE(block.length - 4)
    const reader = new ByteReader(block, 0, block.length - 4 * (1 + restarts))
    const entries: Entry[] = []
    let key: Buffer = Buffer.alloc(0)
    while (!reader.isDone) {
      const [shared, unshared, length] = [reader.varint(), reader.varint(), reader.varint()]
      key = Buffer.concat([key.subarray(0, shared), reader.take(unshared)])
      entries.push({ key, value: reader.take(length) })
    }
    return entries
  } catch {
    return undefined
  }
}

function blockOf(entries: readonly Entry[]): Buffer {
  const parts: Buffer[] = []
  const restarts: number[] = []
  let length = 0
  for (const { key, value } of entries) {
    restarts.push(length)
    const part = Buffer.concat([varint(0), varint(key.length), varint(value.length), key, value])
    parts.push(part)
    length += part.length
  }
  if (restarts.length === 0) restarts.push(0)
  const tail = Buffer.alloc(4 * (restarts.length + 1) + TRAILER)
  for (const [i, restart] of restarts.entries()) tail.writeUInt32LE(restart, 4 * i)
  tail.writeUInt32LE(restarts.length, 4 * restarts.length)
  tail[tail.length - TRAILER] = PLAIN
  const block = Buffer.concat([...parts, tail])
  block.writeUInt32LE(maskedCrc(crc32c(block, 0, block.length - 4)), block.length - 4)
  return block
}

function handleOf(value: Buffer): Handle | undefined {
  try {
    const reader = new ByteReader(value)
    return { offset: reader.varint(), size: reader.varint() }
  } catch {
    return undefined
  }
}

function encodeHandle({ offset, size }: Handle): Buffer {
  return Buffer.concat([varint(offset), varint(size)])
}
