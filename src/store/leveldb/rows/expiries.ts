import type { ExpiryChange, LoggedChange } from '../../../percolator/change.js'
import { expiryTs } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { type Engine, readPage } from '../engine/engine.js'
import { decodeExpiryKey, EXPIRY_RANGE, type ExpiryEntry, expiryBound, newestKey } from '../records/keyspace.js'
import { decodeNewest } from '../records/newest-record.js'
import { readOlderVersion } from './older-versions.js'

const PAGE = 256
const NEVER: Timestamp = Number.MAX_SAFE_INTEGER

/** CF_EXPIRY: versions that expire, by time. An entry may outlive its version, so each is compared with the versions. */
export class Expiries {
  readonly #engine: () => Engine
  /** No version expires above `#floor` and below `#next`. Unknown at first. */
  #floor: Timestamp = 0
  #next: Timestamp = 0
  readonly #looks = new Set<{ least: Timestamp }>()

  constructor(engine: () => Engine) {
    this.#engine = engine
  }

  /** Call before the first commit. Looks at the first entry, so that readers need not look as long as nothing expires. */
  async load(): Promise<void> {
    const [entry] = await readPage(this.#engine(), { ...EXPIRY_RANGE, values: false }, 1)
    this.#next = entry === undefined ? NEVER : decodeExpiryKey(entry[0]).expiryTs
  }

  /** Call when the changes are on disk, before their locks are removed. */
  note(changes: readonly LoggedChange[]): void {
    for (const change of changes) {
      if (change.type !== 'put' || change.expireTs === undefined) continue
      const at = expiryTs({ expireTs: change.expireTs, commitTs: change.commitTs })
      this.#next = Math.min(this.#next, at)
      for (const look of this.#looks) look.least = Math.min(look.least, at)
    }
  }

  /** Call when the entries on disk may have changed unnoticed. */
  forget(): void {
    this.#floor = 0
    this.#next = 0
    for (const look of this.#looks) look.least = 0
  }

  mayExpire(since: Timestamp, upTo: Timestamp): boolean {
    return since < upTo && (since < this.#floor || upTo >= this.#next)
  }

  /**
   * See `ChangeLog.expiries`. The reader may pause for any time, because no iterator of the engine is open in between.
   * @param isWanted leaves other keys out before their versions are read.
   */
  async *read(
    since: Timestamp,
    upTo: Timestamp,
    isWanted: (key: Uint8Array) => boolean = () => true,
  ): AsyncGenerator<readonly ExpiryChange[], void> {
    if (!this.mayExpire(since, upTo)) return
    const look = { least: NEVER }
    this.#looks.add(look)
    let next = NEVER
    let last = since
    try {
      let gte = expiryBound(since + 1)
      for (let isEnd = false, size = 1; !isEnd; size = PAGE) {
        const page = await readPage(this.#engine(), { gte, lt: EXPIRY_RANGE.lt, values: false }, size)
        const isLast = page.length < size
        const entries: ExpiryEntry[] = []
        for (const [stored] of page) {
          const entry = decodeExpiryKey(stored)
          gte = Buffer.concat([stored, Buffer.of(0)])
          isEnd = entry.expiryTs > upTo
          if (!isEnd) {
            last = entry.expiryTs
            if (isWanted(entry.key)) entries.push(entry)
            continue
          }
          next = entry.expiryTs
          break
        }
        isEnd ||= isLast
        const valid = entries.length === 0 ? [] : await this.#valid(entries)
        if (valid.length > 0) yield valid
      }
      this.#know(last, Math.min(next, look.least))
    } finally {
      this.#looks.delete(look)
    }
  }

  /**
   * No version expires between the two. If the known interval touches the new one, the two are joined: readers at other positions
   * have found it.
   */
  #know(floor: Timestamp, next: Timestamp): void {
    this.#floor = this.#floor <= floor && floor < this.#next ? this.#floor : floor
    this.#next = next
  }

  /** An entry is valid if a read at its time finds its version. */
  async #valid(entries: readonly ExpiryEntry[]): Promise<ExpiryChange[]> {
    const engine = this.#engine()
    const newest = await engine.getMany(entries.map(({ key }) => newestKey(key)))
    const valid: ExpiryChange[] = []
    for (const [i, { key, commitTs, expiryTs: at }] of entries.entries()) {
      const bytes = newest[i]
      let write = bytes && decodeNewest(bytes)
      if (write !== undefined && write.commitTs > at) write = await readOlderVersion(engine, key, at)
      if (write?.type !== 'put' || write.commitTs !== commitTs || write.expireTs === 0) continue
      if (expiryTs(write) !== at) continue
      const { expireTs, startTs } = write
      valid.push({ type: 'expire', key, commitTs: at, startTs: at, expireTs, version: { commitTs, startTs } })
    }
    return valid
  }
}
