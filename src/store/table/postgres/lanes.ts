/**
 * Runs a bounded number of batches at once. What is added meanwhile is gathered for the next one, so the busier the database is, the
 * more requests share a round trip; what is added in one turn of the event loop always may.
 */
export class Lanes<T> {
  #queue: T[] = []
  #running = 0
  #isScheduled = false
  readonly #lanes: number
  readonly #take: (queue: readonly T[]) => readonly T[]
  readonly #run: (batch: readonly T[]) => Promise<void>

  /**
   * @param take chooses the next batch among what waits, the oldest first; an empty one until a batch has ended.
   * @param run must not be rejected.
   */
  constructor(lanes: number, take: (queue: readonly T[]) => readonly T[], run: (batch: readonly T[]) => Promise<void>) {
    this.#lanes = lanes
    this.#take = take
    this.#run = run
  }

  add(item: T): void {
    this.#queue.push(item)
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.fill()
    })
  }

  /** To be called when `take` may find more than it did. */
  fill(): void {
    while (this.#running < this.#lanes && this.#queue.length > 0) {
      const batch = this.#take(this.#queue)
      if (batch.length === 0) return
      const taken = new Set(batch)
      this.#queue = this.#queue.filter((item) => !taken.has(item))
      this.#running++
      void this.#run(batch).finally(() => {
        this.#running--
        this.fill()
      })
    }
  }
}
