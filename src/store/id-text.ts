import type { Timestamp } from '../timestamp.js'

export const ID_BYTES = 8

let lastId = -1
let lastText = ''

/** 8 bytes big endian, so that names of system records sort by id. */
export function idText(id: Timestamp): string {
  if (id === lastId) return lastText // A transaction makes many names of few ids.
  const bytes = Buffer.alloc(ID_BYTES)
  bytes.writeBigUInt64BE(BigInt(id))
  lastText = bytes.toString('latin1')
  lastId = id
  return lastText
}

export function idIn(name: string, at: number): Timestamp | undefined {
  const bytes = Buffer.from(name.slice(at, at + ID_BYTES), 'latin1')
  return bytes.length === ID_BYTES ? Number(bytes.readBigUInt64BE()) : undefined
}
