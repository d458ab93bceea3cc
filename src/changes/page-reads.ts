import { sleep } from '../event-loop/sleep.js'
import { type AnswerBudget, CROWDED_MS } from '../store/answer-budget.js'

/** Streams that read a page at the same time. More would only wait for the disk and the event loop. */
const READS_MAX = 16

/** How a stream reads its pages. */
export interface PageReading<T> {
  /** The memory that a page takes. */
  readonly bytesOf: (page: T) => number
  /** What the stream keeps of earlier pages when it asks for another one: the begin of a transaction that goes on there. */
  readonly keptBytes?: () => number
  /** Ends the wait for room, and the pages. */
  readonly isOver: () => boolean
}

/**
 * Bounds the pages that streams have read from the log and from snapshots, and that their clients have not taken yet: few are read at
 * once, and what is read counts as an answer until the stream is asked for more. While half of the room for answers is taken,
 * streams wait, except within a transaction: they can only give back once they have its end, so they also go first. Those whose
 * clients take nothing are closed after a while, and give theirs back.
 */
export class PageReads {
  readonly #answers: AnswerBudget
  #reading = 0
  readonly #waiting: (() => void)[] = []
  /** Within a transaction. */
  readonly #waitingAmid: (() => void)[] = []

  constructor(answers: AnswerBudget) {
    this.#answers = answers
  }

  async *pages<T>(source: AsyncGenerator<T, void>, reading: PageReading<T>): AsyncGenerator<T, void> {
    const { bytesOf, keptBytes, isOver } = reading
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
            lease.hold(bytesOf(page))
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

  /** Room is looked for by those whose turn it is: all that wait for one would find the same room. */
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
