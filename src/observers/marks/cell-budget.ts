/** Cells of all observers that memory knows by name, beside those that are queued. */
export class CellBudget {
  /** Claimed, settling and delayed ones. They are ready again when their time is over, so there is room again. */
  busy = 0
  /** Parked ones, and those that have failed before and wait for the cursor. What is beyond the bound is on disk only. */
  remembered = 0

  constructor(readonly max: number) {}

  /** Nothing can be claimed. */
  get isFull(): boolean {
    return this.busy >= this.max
  }

  get remembersNoMore(): boolean {
    return this.remembered >= this.max
  }
}
