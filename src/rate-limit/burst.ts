import type { Hits } from './hits.js'

interface Waiting {
  readonly by: number
  resolve(hits: Hits): void
  reject(error: unknown): void
}

/**
 * Counts hits of one counter that come while others are on their way by one call, so that a burst takes a few writes, and not a
 * turn for each hit. Each hit still gets a count of its own.
 */
export class Burst {
  readonly #waiting = new Map<string, Waiting[]>()

  /** @param group hits that the same `count` may count together. */
  hit(group: string, by: number, count: (by: number) => Promise<Hits>): Promise<Hits> {
    if (!Number.isSafeInteger(by)) return count(by) // Refused, and others must not be with it.
    return new Promise((resolve, reject) => {
      const hit = { by, resolve, reject }
      const waiting = this.#waiting.get(group)
      if (waiting === undefined) void this.#countAll(group, [hit], count)
      else waiting.push(hit)
    })
  }

  async #countAll(group: string, first: readonly Waiting[], count: (by: number) => Promise<Hits>): Promise<void> {
    for (let hits = first; hits.length > 0; hits = this.#waiting.get(group) ?? []) {
      this.#waiting.set(group, [])
      const sum = hits.reduce((sum, { by }) => sum + by, 0)
      try {
        const counted = await count(sum)
        let before = counted.count - sum
        for (const { by, resolve } of hits) {
          before += by
          resolve({ ...counted, count: before })
        }
      } catch (error) {
        for (const { reject } of hits) reject(error)
      }
    }
    this.#waiting.delete(group)
  }
}
