import { CorruptRecord } from '../../../percolator/codec/key.js'
import { unpackRecord } from '../../../percolator/codec/record.js'
import type { Engine } from './engine.js'

/** @returns 0 when there is no record. @throws CorruptRecord */
export async function readMetaNumber(engine: Engine, key: Buffer): Promise<number> {
  const bytes = await engine.get(key)
  if (bytes === undefined) return 0
  const [value] = unpackRecord(bytes, 'meta', 1)
  if (typeof value !== 'number' || !Number.isSafeInteger(value))
    throw new CorruptRecord('a meta record is not a number')
  return value
}
