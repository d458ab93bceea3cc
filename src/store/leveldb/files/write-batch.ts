import { ByteReader } from './varint.js'

const SEQUENCE_AND_COUNT = 12
const PUT = 1

/** Sequence numbers of a batch, one per operation; undefined when the bytes are too short. */
export function sequencesOf(payload: Buffer): { readonly first: bigint; readonly end: bigint } | undefined {
  if (payload.length < SEQUENCE_AND_COUNT) return undefined
  const first = payload.readBigUInt64LE(0)
  return { first, end: first + BigInt(payload.readUInt32LE(8)) }
}

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
