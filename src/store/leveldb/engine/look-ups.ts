import type { Engine } from './engine.js'

/** A look-up that takes longer has probably read from disk. */
const SLOW_MS = 0.2
/** Look-ups that use the thread pool after a slow one. */
const AFTER_SLOW = 1000

/**
 * Looks up single records. Nearly all are in the memory of LevelDB or of the operating system, and take microseconds, less than
 * a crossing into the thread pool and back. So look-ups run on the event loop until one is slow: then the thread pool takes the
 * next ones, because a slow disk must not block other requests.
 */
export class LookUps {
  readonly #engine: Engine
  #asyncLeft: number

  /** @param slowMs 0: all look-ups use the thread pool. */
  constructor(
    engine: Engine,
    readonly slowMs = SLOW_MS,
  ) {
    this.#engine = engine
    this.#asyncLeft = slowMs > 0 ? 0 : Number.POSITIVE_INFINITY
  }

  get(key: Buffer): Buffer | undefined | Promise<Buffer | undefined> {
    if (this.#asyncLeft > 0) {
      this.#asyncLeft--
      return this.#engine.get(key)
    }
    const begin = performance.now()
    const bytes = this.#engine.getSync(key)
    if (performance.now() - begin >= this.slowMs) this.#asyncLeft = AFTER_SLOW
    return bytes
  }
}
