/**
 * The place of a dispatcher in the entries of its observer. It goes round: from its place to the end, and from the beginning to its
 * place. It never begins at the front, because deleted entries lie there, which LevelDB has to pass.
 */
export class Cursor {
  /** Entries after this key come next, as `keyText`; undefined: all of them. */
  #after: string | undefined
  #round: { readonly from: string | undefined; isWrapped: boolean } | undefined
  #isAgain = false

  get after(): string | undefined {
    return this.#after
  }

  /** A round is not complete: there may be entries that the dispatcher does not know. */
  get isGoing(): boolean {
    return this.#round !== undefined
  }

  /** The entry of this key, which stands now, will be met from now on. */
  meet(text: string): void {
    if (this.#round === undefined) this.#begin()
    else if (!this.#isAhead(text)) this.#isAgain = true
  }

  /** Only before the first round. */
  startAt(after: string | undefined): void {
    this.#after = after
    this.#round = undefined
    this.#isAgain = false
    this.#begin()
  }

  /** @param last the last key of the page that was read from `after`; undefined when it was empty. @param isEnd no key lies behind it. */
  passed(last: string | undefined, isEnd: boolean): void {
    const round = this.#round
    if (round === undefined) return
    const { from, isWrapped } = round
    this.#after = isEnd ? undefined : last
    if (isWrapped && (isEnd || (from !== undefined && last !== undefined && last >= from))) this.#end()
    else if (isEnd) round.isWrapped = true
  }

  /** Whether this round has not passed the key yet. */
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
