import { startWorker, stop } from '../../harness/process.mjs'

/** Streams of events in a process of their own, which notes when an event came. */
export class Streams {
  #worker

  /** @param paths of the streams. Fulfilled once all of them have their first event. */
  static async open(url, paths) {
    const streams = new Streams()
    streams.#worker = startWorker('bench/scenarios/changes/holder.mjs', url)
    await streams.#worker.call('open', paths)
    return streams
  }

  /** @returns the first `count` events that came since the last call, with `key` and `at`, a time of the clock in ms. */
  events(count) {
    return this.#worker.call('events', count)
  }

  close() {
    return stop(this.#worker)
  }
}

/** The clock that all processes share, in ms. @param time of `performance.now()` */
export const clockAt = (time = performance.now()) => performance.timeOrigin + time
