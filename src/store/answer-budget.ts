import type { Limits } from '../limits.js'
import { answerTooLarge } from '../percolator/answer-size.js'
import { KvError } from '../percolator/errors.js'

/** The memory of answers: of what reads have found, until the client has taken it. Counted, not allocated. */
export class AnswerBudget {
  readonly #limits: Pick<Limits, 'answerBytesMax' | 'answersBytesMax'>
  #held = 0

  constructor(limits: Pick<Limits, 'answerBytesMax' | 'answersBytesMax'>) {
    this.#limits = limits
  }

  /** Of all answers that are not taken yet. */
  get heldBytes(): number {
    return this.#held
  }
  get isSpent(): boolean {
    return this.#held >= this.#limits.answersBytesMax
  }

  hold(bytes: number): void {
    this.#held += bytes
  }
  release(bytes: number): void {
    this.#held -= bytes
  }

  /** Before a read of unknown size. @throws KvError `overloaded` */
  requireRoom(): void {
    if (this.isSpent) throw new KvError('overloaded', 'clients have not taken the answers that were read for them', {})
  }

  /** @param bytes of one answer's keys and values. @throws KvError `payload_too_large` */
  requireOneWithin(bytes: number): void {
    if (bytes > this.#limits.answerBytesMax) throw answerTooLarge(this.#limits.answerBytesMax)
  }
}

/** One answer that grows: held until `end`. */
export class GrowingAnswer {
  readonly #budget: AnswerBudget
  #bytes = 0

  constructor(budget: AnswerBudget) {
    this.#budget = budget
  }

  /** @throws KvError `payload_too_large` */
  add(bytes: number): void {
    this.#bytes += bytes
    this.#budget.hold(bytes)
    this.#budget.requireOneWithin(this.#bytes)
  }

  end(): void {
    this.#budget.release(this.#bytes)
    this.#bytes = 0
  }
}
