import { asInteger, unpackRecord } from '../../../percolator/codec/record.js'
import type { Timestamp } from '../../../timestamp.js'
import { CELL_KINDS } from '../../cell-names.js'
import { type Engine, pagesOf } from '../engine/engine.js'
import { readMetaNumber } from '../engine/meta-number.js'
import { type KeyRecords, MARK_MAX } from '../integrity/check-key.js'
import { removalsIn } from '../integrity/check-log.js'
import { META_SAFE_POINT, systemRange } from '../records/keyspace.js'
import { SYSTEM_KINDS } from '../records/system-kinds.js'
import { readRestoreProgress } from '../rows/restore-progress.js'

/**
 * The highest timestamp in a database, below which the oracle's mark must not be. Does not count records that clients wrote in
 * the future: those in the list of records ahead, and those above every timestamp of an oracle.
 */
export class NewestTimestamp {
  readonly #mark: Timestamp
  ts: Timestamp = 0

  /** @param mark listed records count as future ones when they are above it. */
  constructor(mark: Timestamp) {
    this.#mark = mark
  }

  note({ lock, writes, valuesAt, aheadAt }: KeyRecords): void {
    const ahead = new Set(aheadAt.filter((ts) => ts > this.#mark))
    const startedAhead = new Set<Timestamp>()
    for (const { commitTs, startTs } of writes) {
      if (ahead.has(commitTs)) startedAhead.add(startTs)
      else this.#raise(commitTs)
    }
    for (const startTs of valuesAt) if (!startedAhead.has(startTs)) this.#raise(startTs)
    if (lock !== undefined) for (const ts of [lock.startTs, lock.forUpdateTs, lock.minCommitTs]) this.#raise(ts)
  }

  /** Notes the safe point and pins: timestamps that were handed out, though no record may have them. */
  async noteMeta(engine: Engine): Promise<void> {
    this.#raise(await readMetaNumber(engine, META_SAFE_POINT))
    for (const { ts } of await pinsIn(engine)) this.#raise(ts)
  }

  /**
   * Notes observers with their cells, consumers and webhooks. They count as data: a run that begins below the acknowledgement before it is
   * refused, and no position may be above every timestamp.
   */
  async noteAcknowledged(engine: Engine): Promise<void> {
    for (const kind of ['observer', 'consumer', 'webhook', ...CELL_KINDS] as const)
      for await (const page of pagesOf(engine, systemRange(`${kind}/`), 1000))
        for (const [, bytes] of page) for (const ts of SYSTEM_KINDS[kind].timestampsIn(bytes)) this.#raise(ts)
  }

  /** Notes each delete_range, whose timestamp is in no other record. @param engine without seals. */
  async noteLog(engine: Engine): Promise<void> {
    for await (const { commitTs } of removalsIn(engine)) this.#raise(commitTs)
  }

  /** Notes the timestamp of an incomplete restore, which is above its pairs. */
  async noteRestore(engine: Engine): Promise<void> {
    this.#raise((await readRestoreProgress(engine))?.ts ?? 0)
  }

  #raise(ts: Timestamp): void {
    if (ts <= MARK_MAX) this.ts = Math.max(this.ts, ts)
  }
}

export async function pinsIn(engine: Engine): Promise<{ readonly stored: Buffer; readonly ts: Timestamp }[]> {
  const found: { readonly stored: Buffer; readonly ts: Timestamp }[] = []
  for await (const page of pagesOf(engine, systemRange('pin/'), 1000))
    for (const [stored, bytes] of page) found.push({ stored, ts: asInteger(unpackRecord(bytes, 'pin', 2)[0], 'pin') })
  return found
}
