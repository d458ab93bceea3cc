import { CLOCK_MS_MAX } from '../../../limits.js'
import type { Jump } from '../../../oracle/clock.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import { asInteger, asList, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import { physicalMs, type Timestamp } from '../../../timestamp.js'
import { DataDirectoryError } from '../data-directory-error.js'
import type { Engine, EngineOp } from '../engine/engine.js'
import { META_MARK } from '../records/keyspace.js'

export interface SavedMark {
  readonly mark: Timestamp
  readonly jumps: readonly Jump[]
  readonly extraMs: number
}

export function putMark({ mark, jumps, extraMs }: SavedMark): EngineOp {
  const fields: unknown[] = [mark]
  if (jumps.length > 0 || extraMs > 0) fields.push(jumps.flatMap(({ atMs, ms }) => [atMs, ms]))
  if (extraMs > 0) fields.push(extraMs)
  return { type: 'put', key: META_MARK, value: packRecord(fields) }
}

/** @throws DataDirectoryError when a start with a wrong clock has raised the mark beyond the last timestamp. */
export async function readMark(engine: Engine, directory: string): Promise<SavedMark> {
  const bytes = await engine.get(META_MARK)
  if (bytes === undefined) return { mark: 0, jumps: [], extraMs: 0 }
  const [mark, jumps = [], extraMs = 0] = unpackRecord(bytes, 'meta', 1)
  if (typeof mark !== 'number') throw new CorruptRecord("the oracle's mark is not a number")
  if (physicalMs(mark) > CLOCK_MS_MAX)
    throw new DataDirectoryError(
      `the timestamps of the data directory ${directory} have come to their end, in 2109: PerKV was started under a wrong clock; set the clock, then perkv repair --reset-mark --data ${directory} puts them right`,
    )
  return {
    mark: asInteger(mark, 'meta'),
    jumps: jumpsOf(asList(jumps, 'meta', asInteger)),
    extraMs: asInteger(extraMs, 'meta'),
  }
}

function jumpsOf(numbers: readonly number[]): Jump[] {
  const jumps: Jump[] = []
  for (let i = 0; i + 1 < numbers.length; i += 2)
    jumps.push({ atMs: numbers[i] as number, ms: numbers[i + 1] as number })
  return jumps
}
