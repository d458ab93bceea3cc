import { throttle } from '../../event-loop/throttle.js'
import type { MarkedCells } from '../../store/marked-cells.js'
import type { Timestamp } from '../../timestamp.js'

const PAGE = 1024
/** A count is reused for this long. */
const FRESH_MS = 10_000

export interface Pending {
  readonly count: number
  /** changeTs of the oldest notification; 0: none. */
  readonly oldest: Timestamp
}

/** Counts the notifications of one observer on request, at most every ten seconds. */
export class PendingWalk {
  readonly #cells: MarkedCells
  readonly #id: Timestamp
  #last: (Pending & { readonly atMs: number }) | undefined
  /** Result of the present walk so far. */
  #partial: Pending = { count: 0, oldest: 0 }
  #running: Promise<void> | undefined
  readonly #end = new AbortController()

  constructor(cells: MarkedCells, id: Timestamp) {
    this.#cells = cells
    this.#id = id
  }

  /** The last count, or what the first walk has counted so far. */
  get last(): Pending {
    return this.#last ?? this.#partial
  }

  /** Resolves when a count is at most ten seconds old, or could not be made. Never rejects. */
  run(): Promise<void> {
    if (this.#last !== undefined && performance.now() - this.#last.atMs < FRESH_MS) return Promise.resolve()
    this.#running ??= this.#walk().finally(() => {
      this.#running = undefined
    })
    return this.#running
  }

  /** Ends a walk after its present page. */
  async close(): Promise<void> {
    this.#end.abort()
    await this.#running
  }

  async #walk(): Promise<void> {
    let count = 0
    let oldest = 0
    try {
      for (let after: Uint8Array | undefined; !this.#end.signal.aborted; ) {
        const begin = performance.now()
        const entries = await this.#cells.notifications(this.#id, { after, limit: PAGE })
        for (const { notification } of entries)
          if (oldest === 0 || notification.changeTs < oldest) oldest = notification.changeTs
        count += entries.length
        this.#partial = { count, oldest }
        after = entries.at(-1)?.key
        if (entries.length < PAGE) {
          this.#last = { count, oldest, atMs: performance.now() }
          return
        }
        await throttle(performance.now() - begin, this.#end.signal)
      }
    } catch {} // While the store is not available, the last count is shown.
  }
}
