import { mergedRanges } from '../../../bytes/key-range.js'
import { runSliced } from '../../../event-loop/time-slicer.js'
import { decideLock, hasExpiredSince, isNewer, readChanged } from '../../../percolator/actions/validate-reads.js'
import type { ValidateReadsRequest } from '../../../percolator/api.js'
import { belowSafePoint } from '../../../percolator/errors.js'
import type { WriteRecord } from '../../../percolator/write.js'
import type { LockEntry } from '../memory/lock-table.js'
import { KEYS_AT_A_TIME } from './batch-sizes.js'
import { findVersion, readVersions } from './row-reader.js'
import type { RowStore } from './row-store.js'

export class ReadValidation {
  readonly #rows: RowStore

  constructor(rows: RowStore) {
    this.#rows = rows
  }

  /** @throws KvError `write_conflict` (`serializable_read`); `key_locked` by younger transactions. */
  async validate(given: ValidateReadsRequest): Promise<void> {
    const request = { ...given, ranges: mergedRanges(given.ranges) }
    const { startTs, commitTs, keys, ranges } = request
    for (;;) {
      await this.#rows.admitRead(commitTs)
      if (startTs < this.#rows.safePoint) throw belowSafePoint(startTs, this.#rows.safePoint)
      // The same order as in `scan`: raise max_ts, check the locks, take the snapshot.
      const younger = new Set<LockEntry>()
      const check = (entry: LockEntry): boolean => {
        const decision = decideLock(entry.key, entry.lock, request)
        if (decision === 'conflict') throw readChanged(entry.key, startTs, { ...entry.lock, commitTs: 0 })
        if (decision === 'wait') younger.add(entry)
        return true
      }
      for (const key of keys) {
        const entry = this.#rows.locks.get(key)
        if (entry !== undefined) check(entry)
      }
      for (const range of ranges) await runSliced(this.#rows.locks.walk(range, check))
      if (younger.size > 0) {
        await this.#rows.writtenOrLocked([...younger])
        continue
      }
      return this.#requireUnchanged(request)
    }
  }

  /** @throws KvError `write_conflict` (`serializable_read`). */
  async #requireUnchanged(request: ValidateReadsRequest): Promise<void> {
    const { startTs, commitTs, keys, ranges } = request
    const snapshot = this.#rows.engine.snapshot()
    try {
      for (let from = 0; from < keys.length; from += KEYS_AT_A_TIME) {
        const chunk = keys.slice(from, from + KEYS_AT_A_TIME)
        const newest = await readVersions(snapshot, chunk, commitTs)
        chunk.forEach((key, i) => {
          const write = newest[i]
          if (write !== undefined && (isNewer(write, request) || hasExpiredSince(write, request)))
            throw readChanged(key, startTs, write)
        })
      }
      for (const range of ranges) {
        const isChange = (write: WriteRecord, isSeen: boolean): boolean =>
          isNewer(write, request) || (isSeen && hasExpiredSince(write, request))
        const found = await findVersion(snapshot, range, startTs, isChange)
        if (found !== undefined) throw readChanged(found.key, startTs, found.write)
      }
    } finally {
      await snapshot.close()
    }
  }
}
