/**
 * The rows that are being changed, each by its newest holder: a second change of one would only wait for the first. One that was
 * given up may still land beside a second one. Each has its condition, so PostgreSQL lets one pass, or both one after the other.
 */
export class ChangingRows {
  readonly #holders = new Map<string, object>()
  readonly #onFree: (() => void)[] = []

  has(row: string): boolean {
    return this.#holders.has(row)
  }

  hold(rows: readonly string[], holder: object): void {
    for (const row of rows) this.#holders.set(row, holder)
  }

  free(rows: readonly string[], holder: object): void {
    for (const row of rows) if (this.#holders.get(row) === holder) this.#holders.delete(row)
    for (const call of this.#onFree) call()
  }

  /** @param call for what may wait for a row. */
  onFree(call: () => void): void {
    this.#onFree.push(call)
  }
}
