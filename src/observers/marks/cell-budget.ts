/** Bounds the cells that all observers keep in memory besides the queued ones. */
export class CellBudget {
  /** Claimed, withheld and delayed cells. Each frees its place when its time is over. */
  busy = 0
  /** Parked cells, and cells that failed before and wait for the cursor. Those beyond the bound are on disk only. */
  remembered = 0

  constructor(readonly max: number) {}

  /** Whether no further cell can be claimed. */
  get isFull(): boolean {
    return this.busy >= this.max
  }

  get remembersNoMore(): boolean {
    return this.remembered >= this.max
  }
}
