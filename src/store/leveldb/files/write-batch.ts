import { ByteReader } from './varint.js'

const SEQUENCE_AND_COUNT = 12
const PUT = 1

/** The keys that a record of a `.log` puts or deletes. */
export function batchKeys(payload: Buffer): Buffer[] {
  const keys: Buffer[] = []
  const reader = new ByteReader(payload, SEQUENCE_AND_COUNT)
  while (!reader.isDone) {
    const type = reader.take(1)[0]
    keys.push(reader.slice())
    if (type === PUT) reader.slice()
  }
  return keys
}
