import { type EngineRange, type EngineReader, readPage } from '../engine/engine.js'

const FIRST_COUNT = 16
const COUNT_MAX = 128
/** A single record may be longer. */
const BYTES_MAX = 512 * 1024

/**
 * The values of a range of records of unknown sizes, in portions of up to `BYTES_MAX` and `COUNT_MAX`. The reader may pause
 * between portions for any time, because no iterator of the engine is open then.
 */
export async function* logRecords(engine: EngineReader, range: EngineRange): AsyncGenerator<readonly Buffer[], void> {
  let { gte } = range
  let count = FIRST_COUNT
  for (;;) {
    const read = await readPage(engine, { ...range, gte }, count)
    const isEnd = read.length < count
    let bytes = 0
    const tooMany = read.findIndex(([, record], i) => {
      bytes += record.length
      return bytes > BYTES_MAX && i > 0
    })
    if (tooMany !== -1) {
      read.length = tooMany
      count = tooMany
    } else if (2 * bytes <= BYTES_MAX) count = Math.min(2 * count, COUNT_MAX)
    const last = read.at(-1)
    if (last === undefined) return
    gte = Buffer.concat([last[0], Buffer.of(0)])
    yield read.map(([, record]) => record)
    if (isEnd && tooMany === -1) return
  }
}
