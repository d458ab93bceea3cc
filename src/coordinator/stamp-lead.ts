const MS_MIN = 5
const MS_MAX = 500

/**
 * By how much a chosen commit_ts is ahead of the oracle: about three times as long as the slowest of the last prewrites of such
 * transactions took. Too little costs a conflict, too much a wait.
 */
export class StampLead {
  #ms = 50

  get ms(): number {
    return Math.ceil(this.#ms)
  }

  wasEnough(tookMs: number): void {
    this.#ms = Math.min(MS_MAX, Math.max(MS_MIN, 3 * tookMs, 0.9 * this.#ms))
  }

  wasTooShort(): void {
    this.#ms = Math.min(MS_MAX, 2 * this.#ms)
  }
}
