import { sleep } from '../event-loop/sleep.js'
import type { Cells } from '../store/cells.js'
import type { Timestamp } from '../timestamp.js'

const PAGE = 1024
/** A count is answered again for this long. */
const FRESH_MS = 10_000
/** Who asks waits this long for a count, and then gets the one before. */
const WAIT_MS = 100

export interface Pending {
  readonly count: number
  /** changeTs of the oldest entry; 0: none. */
  readonly oldest: Timestamp
}

/** Counts the entries of one observer, for those who ask, at most every ten seconds. */
export class PendingWalk {
  readonly #cells: Cells
  readonly #id: Timestamp
  #last: (Pending & { readonly atMs: number }) | undefined
  /** As far as the walk has come. */
  #partial: Pending = { count: 0, oldest: 0 }
  #running: Promise<void> | undefined
  #isClosed = false

  constructor(cells: Cells, id: Timestamp) {
    this.#cells = cells
    this.#id = id
  }

  async pending(): Promise<Pending> {
    if (this.#last === undefined || performance.now() - this.#last.atMs >= FRESH_MS) {
      this.#running ??= this.#walk().finally(() => {
        this.#running = undefined
      })
      await Promise.race([this.#running, sleep(WAIT_MS)])
    }
    return this.#last ?? this.#partial
  }

  /** Ends a walk after its present page. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#running
  }

  /** Never rejects: while the store is not available, the last count is shown. */
  async #walk(): Promise<void> {
    let count = 0
    let oldest = 0
    try {
      for (let after: Uint8Array | undefined; !this.#isClosed; ) {
        const entries = await this.#cells.entries(this.#id, { after, limit: PAGE })
        for (const { entry } of entries) if (oldest === 0 || entry.changeTs < oldest) oldest = entry.changeTs
        count += entries.length
        this.#partial = { count, oldest }
        after = entries.at(-1)?.key
        if (entries.length < PAGE) {
          this.#last = { count, oldest, atMs: performance.now() }
          return
        }
      }
    } catch {}
  }
}
