import { randomBytes } from 'node:crypto'

const PROCESS_BYTES = 6
const SECONDS_BYTES = 4
const COUNT_BYTES = 6

/** When a revision was made, in seconds of the clock of its process. */
export function secondOf(revision: Buffer): number {
  return revision.readUInt32BE(PROCESS_BYTES)
}

/**
 * Revisions of rows: 6 bytes of the process, 4 of the clock in seconds, 6 of a counter. No revision is ever used twice. The clock
 * says when the row was changed last, which a collection asks before it removes what is left of a row.
 */
export class Revisions {
  readonly #process = randomBytes(PROCESS_BYTES)
  #count = 0

  next(): Buffer {
    const out = Buffer.allocUnsafe(PROCESS_BYTES + SECONDS_BYTES + COUNT_BYTES)
    this.#process.copy(out)
    out.writeUInt32BE(Math.floor(Date.now() / 1000) >>> 0, PROCESS_BYTES)
    out.writeUIntBE(++this.#count, PROCESS_BYTES + SECONDS_BYTES, COUNT_BYTES)
    return out
  }
}
