import { LONG_READS_MAX } from '../../../limits.js'

/** Reads of ranges and of many keys: some at a time, the others in order of arrival, because each may hold a whole answer. */
export class LongReads {
  #running = 0
  readonly #waiting: (() => void)[] = []

  async run<T>(read: () => Promise<T>): Promise<T> {
    if (this.#running < LONG_READS_MAX) this.#running++
    else await new Promise<void>((start) => this.#waiting.push(start)) // Whoever ends hands its place over.
    try {
      return await read()
    } finally {
      const next = this.#waiting.shift()
      if (next === undefined) this.#running--
      else next()
    }
  }
}
