import { keyText } from '../../../src/bytes/key-text.js'
import type { RowRange, RowsRequest, WalkRequest } from '../../../src/store/table/layout/table.js'

/** What one transaction of a database holds. */
export interface Hold {
  /** Commits or rolls back. Calls after the first one do nothing. */
  end(): void
}

class Held implements Hold {
  readonly keys: ReadonlySet<string>
  /** In the order in which they came. */
  readonly onEnd: (() => void)[] = []
  readonly #holds: Set<Held>

  constructor(keys: readonly Buffer[], holds: Set<Held>) {
    this.keys = new Set(keys.map(keyText))
    this.#holds = holds
    holds.add(this)
  }

  end(): void {
    this.#holds.delete(this)
    for (const run of this.onEnd.splice(0)) run()
  }
}

/** Rows that transactions of several rows hold, as a database locks them. */
export class RowHolds {
  readonly #holds = new Set<Held>()

  take(keys: readonly Buffer[]): Hold {
    return new Held(keys, this.#holds)
  }

  /** Calls `run` once nobody holds any of the rows: at once, if it is so. */
  whenFree(keys: readonly Buffer[], run: () => void): void {
    const inTheWay = [...this.#holds].find((hold) => keys.some((key) => hold.keys.has(keyText(key))))
    if (inTheWay === undefined) run()
    else inTheWay.onEnd.push(() => this.whenFree(keys, run))
  }

  /** Calls `run` once all have ended who hold a row of the request now: at once, if there are none. */
  whenSettled(request: RowsRequest | WalkRequest, run: () => void): void {
    const keys = 'range' in request ? [] : (request.keys ?? []).map(keyText)
    const ranges = 'range' in request ? [request.range] : (request.ranges ?? [])
    const isMeant = (key: string): boolean => keys.includes(key) || ranges.some((range) => isWithin(key, range))
    let left = 1
    const ended = (): void => {
      if (--left === 0) run()
    }
    for (const hold of this.#holds)
      if ([...hold.keys].some(isMeant)) {
        left++
        hold.onEnd.push(ended)
      }
    ended()
  }
}

function isWithin(key: string, { start, end }: RowRange): boolean {
  return key >= keyText(start) && (end === undefined || key < keyText(end))
}
