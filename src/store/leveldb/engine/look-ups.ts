import type { Engine } from './engine.js'

/** Longer than this, and a look-up has gone to the disk, or might as well have. */
const SLOW_MS = 0.2
/** Look-ups that go through the thread pool after a slow one. */
const AFTER_SLOW = 1000

/**
 * Look-ups of single records. Nearly all are answered from LevelDB's or the system's memory within microseconds, less than
 * a crossing into the thread pool and back costs; so they are made on the spot, until one takes long: a disk must not hold
 * up everybody else.
 */
export class LookUps {
  readonly #engine: Engine
  #asyncLeft: number

  /** @param slowMs 0: nothing is looked up on the spot. */
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
