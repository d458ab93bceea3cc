import {
  BACKUP_MAGIC,
  BACKUP_VERSION,
  type BackupHeader,
  type BackupPair,
  type BlockType,
  PREAMBLE_BYTES,
} from './backup-format.js'
import { encodePairs } from './pair-records.js'
import { RunningSums } from './running-sums.js'

/** Encodes a backup. Call `begin`, then `data` for each block of pairs, then `end`. */
export class BackupEncoder {
  /** @param sums of an earlier run that is continued; skip `begin` then. */
  constructor(readonly sums = new RunningSums()) {}

  begin({ id, ts, perkv, start }: BackupHeader): Buffer {
    const preamble = Buffer.alloc(PREAMBLE_BYTES)
    preamble.write(BACKUP_MAGIC, 'latin1')
    preamble.writeUInt32BE(BACKUP_VERSION, BACKUP_MAGIC.length)
    this.sums.preamble(preamble)
    const from = start === undefined ? {} : { start: Buffer.from(start).toString('base64') }
    return Buffer.concat([preamble, this.#block('header', Buffer.from(JSON.stringify({ id, ts, perkv, ...from })))])
  }

  /** @param body the encoded pairs, when the caller has them already. */
  data(pairs: readonly BackupPair[], body = encodePairs(pairs)): Buffer {
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
