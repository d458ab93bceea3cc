import { LONG_READS_MAX } from '../../../limits.js'
import type { AnswerBudget } from '../../answer-budget.js'
import { guard } from './guard.js'

/**
 * Runs reads of ranges and of many keys, at most `LONG_READS_MAX` at a time, in order of arrival. Each may hold a whole answer in
 * memory, hence the bound.
 */
export class LongReads {
  readonly #answers: AnswerBudget
  #running = 0
  readonly #waiting: (() => void)[] = []

  constructor(answers: AnswerBudget) {
    this.#answers = answers
  }

  /** @throws KvError `overloaded` */
  run<T>(read: () => Promise<T>): Promise<T> {
    return guard(async () => {
      if (this.#running < LONG_READS_MAX) this.#running++
      else await new Promise<void>((start) => this.#waiting.push(start)) // A read that ends passes its place on.
      try {
        this.#answers.requireRoom()
        return await read()
      } finally {
        const next = this.#waiting.shift()
        if (next === undefined) this.#running--
        else next()
      }
    })
  }
}
