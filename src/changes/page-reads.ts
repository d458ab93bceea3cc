import { sleep } from '../event-loop/sleep.js'
import type { AnswerBudget } from '../store/answer-budget.js'

/** Streams that read a page at the same time. More would only wait for the disk and the event loop. */
const READS_MAX = 16
/** How often a stream looks for room that others have given back. */
const CROWDED_MS = 50

/**
 * Bounds the pages that streams have read from the log and from snapshots, and that their clients have not taken yet: few are read at
 * once, and what is read counts as an answer until the stream is asked for more. While half of the room for answers is taken,
 * streams wait. Those whose clients take nothing are closed after a while, and give theirs back.
 */
export class PageReads {
  readonly #answers: AnswerBudget
  #reading = 0
  readonly #waiting: (() => void)[] = []

  constructor(answers: AnswerBudget) {
    this.#answers = answers
  }

  /** @param bytesOf the memory that a page takes. @param isOver ends the wait for room, and the pages. */
  async *pages<T>(
    source: AsyncGenerator<T, void>,
    bytesOf: (page: T) => number,
    isOver: () => boolean,
  ): AsyncGenerator<T, void> {
    try {
      while (await this.#hasRoom(isOver)) {
        const { value, done } = await this.#read(source)
        if (done) return
        const lease = this.#answers.lease()
        lease.hold(bytesOf(value))
        try {
          yield value
        } finally {
          lease.end()
        }
      }
    } finally {
      await source.return()
    }
  }

  async #hasRoom(isOver: () => boolean): Promise<boolean> {
    while (!isOver() && this.#answers.isCrowded) await sleep(CROWDED_MS)
    return !isOver()
  }

  async #read<T>(source: AsyncGenerator<T, void>): Promise<IteratorResult<T, void>> {
    if (this.#reading >= READS_MAX) await new Promise<void>((start) => this.#waiting.push(start))
    else this.#reading++
    try {
      return await source.next()
    } finally {
      const next = this.#waiting.shift()
      if (next === undefined) this.#reading--
      else next()
    }
  }
}
