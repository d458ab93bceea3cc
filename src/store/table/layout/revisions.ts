import { randomBytes } from 'node:crypto'

const PROCESS_BYTES = 6
const SECONDS_BYTES = 4
const COUNT_BYTES = 6
export const REVISION_BYTES = PROCESS_BYTES + SECONDS_BYTES + COUNT_BYTES

/** When the revision was made, in seconds by the clock of its process. */
export function secondOf(revision: Buffer): number {
  return revision.readUInt32BE(PROCESS_BYTES)
}

/**
 * Revisions of rows: 6 bytes for the process, 4 for the clock in seconds, 6 for a counter. No revision is ever used twice. The
 * seconds say when the row last changed, which a collection checks before it removes the rest of a row.
 */
export class Revisions {
  readonly #process = randomBytes(PROCESS_BYTES)
  #count = 0

  next(): Buffer {
    const out = Buffer.allocUnsafe(REVISION_BYTES)
    this.#process.copy(out)
    out.writeUInt32BE(Math.floor(Date.now() / 1000) >>> 0, PROCESS_BYTES)
    out.writeUIntBE(++this.#count, PROCESS_BYTES + SECONDS_BYTES, COUNT_BYTES)
    return out
  }
}
