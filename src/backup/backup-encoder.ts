import {
  BACKUP_MAGIC,
  BACKUP_VERSION,
  type BackupEntry,
  type BackupHeader,
  type BlockType,
  INCREMENT_VERSION,
  PREAMBLE_BYTES,
} from './backup-format.js'
import { encodePairs } from './pair-records.js'
import { RunningSums } from './running-sums.js'

/** Encodes a backup. Call `begin`, then `data` for each block of pairs, then `end`. */
export class BackupEncoder {
  /** @param sums of an earlier run that is continued; skip `begin` then. */
  constructor(readonly sums = new RunningSums()) {}

  begin(header: BackupHeader): Buffer {
    const preamble = Buffer.alloc(PREAMBLE_BYTES)
    preamble.write(BACKUP_MAGIC, 'latin1')
    preamble.writeUInt32BE(header.base === undefined ? BACKUP_VERSION : INCREMENT_VERSION, BACKUP_MAGIC.length)
    this.sums.preamble(preamble)
    return Buffer.concat([preamble, this.#block('header', Buffer.from(JSON.stringify(wireHeader(header))))])
  }

  /** @param body the encoded pairs, when the caller has them already. */
  data(pairs: readonly BackupEntry[], body = encodePairs(pairs)): Buffer {
    this.sums.counted(pairs)
    return this.#block('data', body)
  }

  end(): Buffer {
    const { pairs, bytes } = this.sums
    return this.#block('end', Buffer.from(JSON.stringify({ pairs, bytes, sha256: this.sums.digest() })), false)
  }

  #block(type: BlockType, body: Buffer, isSummed = true): Buffer {
    const head = this.sums.headOf(type, body)
    if (isSummed) this.sums.block(head, body)
    return Buffer.concat([head, body])
  }
}

function wireHeader({ id, ts, perkv, start, store, base, removed }: BackupHeader): object {
  return {
    id,
    ts,
    perkv,
    store,
    start: start && base64(start),
    base: base && { id: base.id, ts: base.ts },
    removed: base && removed?.map((range) => ({ start: base64(range.start), end: base64(range.end), ts: range.ts })),
  }
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64')
}
