import type { AnswerBudget, AnswerLease } from '../store/answer-budget.js'

/** The values that a one-shot transaction has read, counted against the answer budget until its write is on disk. */
export class CountedReads {
  readonly prefetched: AnswerLease
  readonly answer: AnswerLease

  constructor(budget: AnswerBudget, caller: string | undefined) {
    this.prefetched = budget.lease(caller)
    this.answer = budget.lease(caller)
  }

  end(): void {
    this.prefetched.end()
    this.answer.end()
  }
}
