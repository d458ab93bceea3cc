import {
  BACKUP_MAGIC,
  BACKUP_VERSION,
  type BackupEntry,
  type BackupHeader,
  BLOCK_BYTES,
  type BlockType,
  INCREMENT_VERSION,
  PREAMBLE_BYTES,
} from './backup-format.js'
import { encodePairs, recordBytes } from './pair-records.js'
import { RunningSums } from './running-sums.js'

/** Encodes a backup. Call `begin`, then `add` for each entry, or `data` for each block of entries, then `end`. */
export class BackupEncoder {
  /** Entries of the unfinished block. */
  #entries: BackupEntry[] = []
  #bytes = 0

  /** @param sums of an earlier run that is continued; skip `begin` then. */
  constructor(readonly sums = new RunningSums()) {}

  begin(header: BackupHeader): Buffer {
    const preamble = Buffer.alloc(PREAMBLE_BYTES)
    preamble.write(BACKUP_MAGIC, 'latin1')
    preamble.writeUInt32BE(header.base === undefined ? BACKUP_VERSION : INCREMENT_VERSION, BACKUP_MAGIC.length)
    this.sums.preamble(preamble)
    return Buffer.concat([preamble, this.#block('header', Buffer.from(JSON.stringify(wireHeader(header))))])
  }

  /** @param body the encoded pairs, if the caller has them. */
  data(pairs: readonly BackupEntry[], body = encodePairs(pairs)): Buffer {
    this.sums.counted(pairs)
    return this.#block('data', body)
  }

  /** @returns the block that the entry completes. */
  add(entry: BackupEntry): Buffer | undefined {
    this.#entries.push(entry)
    this.#bytes += recordBytes(entry)
    return this.#bytes < BLOCK_BYTES ? undefined : this.#rest()
  }

  end(): Buffer {
    const rest = this.#entries.length > 0 ? [this.#rest()] : []
    const { pairs, bytes } = this.sums
    const totals = Buffer.from(JSON.stringify({ pairs, bytes, sha256: this.sums.digest() }))
    return Buffer.concat([...rest, this.#block('end', totals, false)])
  }

  #rest(): Buffer {
    const entries = this.#entries
    this.#entries = []
    this.#bytes = 0
    return this.data(entries)
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
