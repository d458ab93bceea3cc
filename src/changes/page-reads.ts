import { sleep } from '../event-loop/sleep.js'
import { type AnswerBudget, CROWDED_MS } from '../store/answer-budget.js'

/** Streams that read a page at the same time. More would only wait for the disk and the event loop. */
const READS_MAX = 16

export interface PageReading<T> {
  /** Memory that a page takes. */
  readonly pageBytes: (page: T) => number
  /** Memory that the stream keeps of earlier pages while it reads the next: the begin of an unfinished transaction. */
  readonly keptBytes?: () => number
  /** Whether the stream has ended. */
  readonly isOver: () => boolean
}

/**
 * Bounds the pages that streams have read from the log and from snapshots, and that their clients have not taken yet: few are
 * read at once, and a page counts as an answer until the stream asks for more. While half of the room for answers is taken,
 * streams wait, except within a transaction: they can release their pages only after its end, so they also go first. Streams
 * whose clients take nothing are closed after a while, which releases their pages.
 */
export class PageReads {
  readonly #answers: AnswerBudget
  #reading = 0
  readonly #waiting: (() => void)[] = []
  /** Streams that wait within a transaction. */
  readonly #waitingAmid: (() => void)[] = []

  constructor(answers: AnswerBudget) {
    this.#answers = answers
  }

  async *pages<T>(source: AsyncGenerator<T, void>, reading: PageReading<T>): AsyncGenerator<T, void> {
    const { pageBytes, keptBytes, isOver } = reading
    try {
      while (!isOver()) {
        const kept = keptBytes?.() ?? 0
        const lease = this.#answers.lease()
        lease.hold(kept)
        try {
          if (!(await this.#begin(kept > 0, isOver))) return
          let page: T
          try {
            const { value, done } = await source.next()
            if (done) return
            page = value
            lease.hold(pageBytes(page))
          } finally {
            this.#end()
          }
          yield page
        } finally {
          lease.end()
        }
      }
    } finally {
      await source.return()
    }
  }

  /** Only the first in the queue looks for room: all others would find the same room. */
  async #begin(isAmid: boolean, isOver: () => boolean): Promise<boolean> {
    for (;;) {
      if (this.#reading < READS_MAX) this.#reading++
      else await new Promise<void>((start) => (isAmid ? this.#waitingAmid : this.#waiting).push(start))
      const isCrowded = !isAmid && this.#answers.isCrowded
      if (!isOver() && !isCrowded) return true
      this.#end()
      if (isOver()) return false
      await sleep(CROWDED_MS)
    }
  }

  #end(): void {
    const next = this.#waitingAmid.shift() ?? this.#waiting.shift()
    if (next === undefined) this.#reading--
    else next()
  }
}
