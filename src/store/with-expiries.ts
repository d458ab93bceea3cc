import { type Change, compareChanges, type ExpiryChange } from '../percolator/change.js'
import type { Timestamp } from '../timestamp.js'

export interface Portion {
  readonly changes: readonly Change[]
  readonly upTo: Timestamp
}

/** Merges expiries into the changes of the log. Holds two pages of expiries, however many share a timestamp. */
export class WithExpiries {
  readonly #pages: AsyncGenerator<readonly ExpiryChange[], void>
  #page: readonly ExpiryChange[] = []

  constructor(pages: AsyncGenerator<readonly ExpiryChange[], void>) {
    this.#pages = pages
  }

  async close(): Promise<void> {
    await this.#pages.return()
  }

  /** @param changes all changes of the log up to `upTo` that no earlier call has passed, in order. */
  async *merged(changes: readonly Change[], upTo: Timestamp): AsyncGenerator<Portion, void> {
    let from = 0
    for (;;) {
      await this.#fill()
      const expired = this.#takeUpTo(upTo)
      if (this.#page.length === 0) await this.#fill()
      const next = this.#page[0]
      const last = expired.at(-1)
      if (last === undefined || next === undefined || next.commitTs > upTo) {
        const rest = from === 0 ? changes : changes.slice(from)
        yield { changes: last === undefined ? rest : [...rest, ...expired].sort(compareChanges), upTo }
        return
      }
      let to = from
      while (to < changes.length && compareChanges(changes[to] as Change, last) <= 0) to++
      const portion = [...changes.slice(from, to), ...expired].sort(compareChanges)
      from = to
      // A reader may end here, and begin again after the last timestamp that it has completely.
      yield { changes: portion, upTo: next.commitTs > last.commitTs ? last.commitTs : last.commitTs - 1 }
    }
  }

  async #fill(): Promise<void> {
    if (this.#page.length > 0) return
    const { value, done } = await this.#pages.next()
    if (!done) this.#page = value
  }

  #takeUpTo(upTo: Timestamp): readonly ExpiryChange[] {
    const page = this.#page
    const end = page.findIndex(({ commitTs }) => commitTs > upTo)
    this.#page = end === -1 ? [] : page.slice(end)
    return end === -1 ? page : page.slice(0, end)
  }
}
