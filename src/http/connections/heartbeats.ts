import { runSliced } from '../../event-loop/time-slicer.js'

interface Beating {
  beat(): void
}

const TICK_MS = 1000
/** Proxies close silent connections after 30 to 60 seconds. */
const SILENT_MS = 20_000

export class Heartbeats {
  /** When each connection last sent something; the longest silence comes first. */
  readonly #heardMs = new Map<Beating, number>()
  #ticking: NodeJS.Timeout | undefined

  add(one: Beating): void {
    this.#heardMs.set(one, performance.now())
    this.#ticking ??= setInterval(() => void runSliced(this.#beat()), TICK_MS).unref()
  }

  moved(one: Beating): void {
    if (this.#heardMs.delete(one)) this.#heardMs.set(one, performance.now())
  }

  delete(one: Beating): void {
    this.#heardMs.delete(one)
    if (this.#heardMs.size > 0) return
    clearInterval(this.#ticking)
    this.#ticking = undefined
  }

  *#beat(): Generator<void, void, void> {
    const sinceMs = performance.now() - SILENT_MS
    for (const [one, heardMs] of this.#heardMs) {
      if (heardMs > sinceMs) return
      this.moved(one) // Also when the stream is full and sends no heartbeat.
      one.beat()
      yield
    }
  }
}
