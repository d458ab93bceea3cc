import { type Change, compareChanges, type ExpiryChange, type LoggedChange } from '../../../percolator/change.js'
import type { Timestamp } from '../../../timestamp.js'

export interface Portion {
  readonly changes: readonly Change[]
  /** Every change at or below it is in this portion or an earlier one. */
  readonly upTo: Timestamp
}

/** Merges the expiries of a time into the changes of the log. Holds one page of them, however many expire together. */
export class WithExpiries {
  readonly #pages: AsyncGenerator<readonly ExpiryChange[], void>
  #page: readonly ExpiryChange[] = []
  #isEnd = false

  /** @param pages in order. */
  constructor(pages: AsyncGenerator<readonly ExpiryChange[], void>) {
    this.#pages = pages
  }

  /** No call of `merged` may follow. */
  async close(): Promise<void> {
    await this.#pages.return()
  }

  /** @param changes all that the log has up to `upTo` and that no earlier call was given, in order. */
  async *merged(changes: readonly LoggedChange[], upTo: Timestamp): AsyncGenerator<Portion, void> {
    let from = 0
    for (;;) {
      if (this.#page.length === 0 && !this.#isEnd) {
        const { value, done } = await this.#pages.next()
        this.#isEnd = done === true
        if (!done) this.#page = value
      }
      const [first] = this.#page
      if (first === undefined || first.commitTs > upTo) break
      const end = this.#page.findIndex(({ commitTs }) => commitTs > upTo)
      const expired = end === -1 ? this.#page : this.#page.slice(0, end)
      this.#page = end === -1 ? [] : this.#page.slice(end)
      const last = expired.at(-1) as ExpiryChange
      let to = from
      while (to < changes.length && compareChanges(changes[to] as Change, last) <= 0) to++
      const portion = [...changes.slice(from, to), ...expired].sort(compareChanges)
      from = to
      // More may expire at the same timestamp, and so come later in the order than changes that are left.
      yield { changes: portion, upTo: last.commitTs - 1 }
    }
    yield { changes: from === 0 ? changes : changes.slice(from), upTo }
  }
}
