import { ByteReader } from './varint.js'

/** Decompresses one Snappy block (format_description.txt of google/snappy). @throws RangeError when it is malformed. */
export function unsnappy(compressed: Buffer): Buffer {
  const reader = new ByteReader(compressed)
  const out = Buffer.alloc(reader.varint())
  let at = 0
  while (!reader.isDone) {
    const tag = (reader.take(1)[0] as number) >>> 0
    const kind = tag & 3
    if (kind === 0) {
      const short = tag >>> 2
      const literal = reader.take(1 + (short < 60 ? short : littleEndian(reader.take(short - 59))))
      if (at + literal.length > out.length) throw new RangeError('a literal is too long')
      out.set(literal, at)
      at += literal.length
      continue
    }
    const length = kind === 1 ? 4 + ((tag >>> 2) & 7) : 1 + (tag >>> 2)
    const offset =
      kind === 1 ? ((tag >>> 5) << 8) | littleEndian(reader.take(1)) : littleEndian(reader.take(kind === 2 ? 2 : 4))
    if (offset < 1 || offset > at || at + length > out.length) throw new RangeError('a copy is out of bounds')
    for (let i = 0; i < length; i++, at++) out[at] = out[at - offset] as number // Source and target may overlap.
  }
  if (at !== out.length) throw new RangeError('a block is cut short')
  return out
}

function littleEndian(bytes: Buffer): number {
  return bytes.readUIntLE(0, bytes.length)
}
