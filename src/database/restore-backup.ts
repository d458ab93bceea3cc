import { type BackupBlock, decodeBackup } from '../backup/backup-decoder.js'
import { type BackupEntry, BackupError, type BackupPair, BLOCK_BYTES } from '../backup/backup-format.js'
import { RECORD_HEAD_BYTES } from '../backup/pair-records.js'
import { invalid, KvError } from '../errors/kv-error.js'
import { printKey } from '../errors/print-key.js'
import { type Limits, RESTORE_AHEAD_MS_MAX } from '../limits.js'
import type { Store } from '../store/store.js'
import { type Timestamp, timestampFromMs } from '../timestamp.js'

const NO_BYTES = new Uint8Array()

export type PairLimits = Pick<Limits, 'keyBytesMax' | 'valueBytesMax'>

export interface Restored {
  readonly id: string
  readonly ts: Timestamp
  readonly pairs: number
  /** Bytes of keys and values. */
  readonly bytes: number
}

/**
 * Fills an empty store with the pairs of a backup.
 * @param restart first removes the pairs of an incomplete restore.
 * @throws KvError `invalid_argument` or `payload_too_large` for invalid bytes, or for a backup that this store cannot hold; the
 *   errors of `body` and `Upkeep.restore`.
 */
export async function restoreBackup(
  store: Store,
  limits: PairLimits,
  body: AsyncIterable<Uint8Array>,
  restart: boolean,
): Promise<Restored> {
  const longest = RECORD_HEAD_BYTES + limits.keyBytesMax + limits.valueBytesMax
  const blocks = decodeBackup(body, { blockBytesMax: BLOCK_BYTES + longest })
  try {
    const first = await blocks.next()
    if (first.done || first.value.type !== 'header') throw new Error('a backup begins with its header')
    const { id, ts, start, base } = first.value.header
    if (start !== undefined) throw invalid('body', 'this is a part that continues another backup, not one by itself')
    if (base !== undefined)
      throw invalid('body', `this is an increment: restore it with its base, by perkv restore FULL INCREMENT...`)
    if (ts > store.time.clock() + timestampFromMs(RESTORE_AHEAD_MS_MAX))
      throw invalid('body', `the backup is of ts ${ts}, over a day ahead of this machine's clock`)
    const { pairs, bytes } = await store.upkeep.restore({ id, ts }, pairsOf(blocks, limits), restart)
    return { id, ts, pairs, bytes }
  } catch (error) {
    throw error instanceof BackupError ? refused(error, limits) : error
  } finally {
    await blocks.return()
  }
}

async function* pairsOf(blocks: AsyncIterable<BackupBlock>, limits: PairLimits): AsyncGenerator<readonly BackupPair[]> {
  for await (const block of blocks) {
    if (block.type !== 'data') continue
    for (const pair of block.pairs) requireWithinLimits(pair, limits)
    yield block.pairs as readonly BackupPair[] // Only increments have entries without a value.
  }
}

function requireWithinLimits({ key, value = NO_BYTES }: BackupEntry, { keyBytesMax, valueBytesMax }: PairLimits): void {
  const isKeyLong = key.length > keyBytesMax
  if (!isKeyLong && value.length <= valueBytesMax) return
  const limit = isKeyLong ? keyBytesMax : valueBytesMax
  const what = isKeyLong ? 'a key' : `the value of ${printKey(key)}`
  const detail = `${what} has ${(isKeyLong ? key : value).length} bytes, over this server's limit of ${limit}`
  throw new KvError('payload_too_large', detail, { field: 'body', limit })
}

function refused({ reason, message }: BackupError, { valueBytesMax: limit }: PairLimits): KvError {
  return reason === 'too_large'
    ? new KvError('payload_too_large', message, { field: 'body', limit })
    : invalid('body', message)
}
