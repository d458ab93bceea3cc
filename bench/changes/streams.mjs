// Streams of events in a process of their own, which notes when an event came.
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { startWorker, stop } from '../process.mjs'

const PATH = fileURLToPath(new URL('stream-holder.mjs', import.meta.url))

export class Streams {
  #worker

  /** @param paths of the streams. Fulfilled once all of them have their first event. */
  static async open(url, paths) {
    const streams = new Streams()
    streams.#worker = startWorker(PATH, [url])
    streams.#worker.child.send({ paths })
    await streams.#answer()
    return streams
  }

  /** @returns the first `count` events that came since the last call, with `key` and `at`, a time of the clock in ms. */
  events(count) {
    this.#worker.child.send({ count })
    return this.#answer()
  }

  async #answer() {
    const died = once(this.#worker.child, 'exit').then(() => {
      throw new Error('the process with the streams has ended')
    })
    const [{ error, result }] = await Promise.race([once(this.#worker.child, 'message'), died])
    if (error !== undefined) throw new Error(error)
    return result
  }

  close() {
    return stop(this.#worker)
  }
}

/** The clock that all processes share, in ms. */
export const now = () => performance.timeOrigin + performance.now()
