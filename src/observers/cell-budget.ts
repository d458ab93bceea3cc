/** Cells of all observers that memory has to know by name: claimed, delayed or parked ones, and those whose last run failed. */
export class CellBudget {
  used = 0

  constructor(readonly max: number) {}

  get isFull(): boolean {
    return this.used >= this.max
  }
}
