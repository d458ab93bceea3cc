import { asBuffer } from '../bytes/key-text.js'

const NEWLINE = 0x0a
/** Room for the longest value in base64, and its key. */
const LINE_BYTES_MAX = 400 * 1024 * 1024

/** Some editors begin a UTF-8 file with it. */
const BYTE_ORDER_MARK = Buffer.from('\ufeff')

/**
 * Yields the lines of a stream without their newlines, and without a byte order mark at its beginning.
 * @throws RangeError for a line that is too long.
 */
export async function* linesOf(
  source: AsyncIterable<Uint8Array>,
  bytesMax = LINE_BYTES_MAX,
): AsyncGenerator<Buffer, void, undefined> {
  let isFirst = true
  for await (const line of rawLinesOf(source, bytesMax)) {
    yield isFirst && line.indexOf(BYTE_ORDER_MARK) === 0 ? line.subarray(BYTE_ORDER_MARK.length) : line
    isFirst = false
  }
}

async function* rawLinesOf(
  source: AsyncIterable<Uint8Array>,
  bytesMax: number,
): AsyncGenerator<Buffer, void, undefined> {
  let parts: Buffer[] = []
  let length = 0
  for await (const given of source) {
    const chunk = asBuffer(given)
    let from = 0
    for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, from)) {
      parts.push(chunk.subarray(from, at))
      yield parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts)
      parts = []
      length = 0
      from = at + 1
    }
    if (from === chunk.length) continue
    parts.push(chunk.subarray(from))
    length += chunk.length - from
    if (length > bytesMax) throw new RangeError(`a line of over ${bytesMax} bytes`)
  }
  if (parts.length > 0) yield Buffer.concat(parts)
}
