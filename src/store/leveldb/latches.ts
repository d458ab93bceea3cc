/** Who holds, or waits for, the latches of some keys. */
interface Grant {
  readonly keys: readonly string[]
  /** Keys whose latch another grant holds. */
  waitingFor: number
  start: (() => void) | undefined
}

/**
 * One latch a key: requests that touch the same key run one after another, in order of arrival. A request takes its
 * place in all its queues at once, so no two can wait for each other. @see TiKV `storage/txn/latch.rs`.
 */
export class Latches {
  readonly #queues = new Map<string, Grant[]>()

  /**
   * Runs `body` alone among all holders of any of the keys, and keeps the latches until its promise settles.
   * @param keys each once. Nested holds of one key wait for themselves: don't.
   */
  async hold<T>(keys: readonly string[], body: () => Promise<T>): Promise<T> {
    const grant: Grant = { keys, waitingFor: 0, start: undefined }
    for (const key of keys) {
      const queue = this.#queues.get(key)
      if (queue === undefined) this.#queues.set(key, [grant])
      else if (queue.push(grant) > 1) grant.waitingFor++
    }
    if (grant.waitingFor > 0) {
      await new Promise<void>((resolve) => {
        grant.start = resolve
      })
    }
    try {
      return await body()
    } finally {
      this.#release(grant)
    }
  }

  #release(grant: Grant): void {
    for (const key of grant.keys) {
      const queue = this.#queues.get(key)
      if (queue === undefined) continue
      queue.shift()
      const next = queue[0]
      if (next === undefined) this.#queues.delete(key)
      else if (--next.waitingFor === 0) next.start?.()
    }
  }
}
