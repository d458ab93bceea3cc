/**
 * The position of a dispatcher in the notifications of its observer. It goes from its start to the end, then from the beginning
 * to its start. It never begins at the front, because LevelDB would have to skip the deleted notifications there.
 */
export class Cursor {
  /** Notifications after this key come next, as `keyText`; undefined: all notifications. */
  #after: string | undefined
  #round: { readonly from: string | undefined; isWrapped: boolean } | undefined
  #isAgain = false

  get after(): string | undefined {
    return this.#after
  }

  /** Whether a round is incomplete: there may be notifications that the dispatcher does not know. */
  get isGoing(): boolean {
    return this.#round !== undefined
  }

  /** Makes sure that the cursor will pass this key, whose notification exists now. */
  meet(text: string): void {
    if (this.#round === undefined) this.#begin()
    else if (!this.#isAhead(text)) this.#isAgain = true
  }

  /** Call before the first round only. */
  startAt(after: string | undefined): void {
    this.#after = after
    this.#round = undefined
    this.#isAgain = false
    this.#begin()
  }

  /**
   * @param last the last key of the page read from `after`; undefined when the page was empty. @param isEnd no key follows it.
   */
  passed(last: string | undefined, isEnd: boolean): void {
    const round = this.#round
    if (round === undefined) return
    const { from, isWrapped } = round
    this.#after = isEnd ? undefined : last
    if (isWrapped && (isEnd || (from !== undefined && last !== undefined && last >= from))) this.#end()
    else if (isEnd) round.isWrapped = true
  }

  /** Whether this round has yet to pass the key. */
  #isAhead(text: string): boolean {
    if (this.#round === undefined) return false
    const { from, isWrapped } = this.#round
    const isAfter = this.#after === undefined || text > this.#after
    const isBeforeEnd = from === undefined || text <= from
    return isWrapped ? isAfter && isBeforeEnd : isAfter || isBeforeEnd
  }

  #begin(): void {
    this.#round = { from: this.#after, isWrapped: this.#after === undefined }
  }

  #end(): void {
    this.#round = undefined
    if (!this.#isAgain) return
    this.#isAgain = false
    this.#begin()
  }
}
