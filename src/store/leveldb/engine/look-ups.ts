import type { Engine } from './engine.js'

/** A longer look-up has probably read from disk, or another thread had the core. */
const SLOW_MS = 0.2
/** Average slow time per look-up that the event loop bears, about the cost of a crossing into the thread pool. */
const ALLOWANCE_MS = 0.03
/** Slow time beyond the allowance at which the thread pool takes over. */
const EXCESS_MS_MAX = 9
/** Limit on what one look-up counts, so that the thread pool takes over after four slow ones at the earliest. */
const COUNTED_MS_MAX = 3
/** Look-ups that the thread pool takes first. The number doubles each time that look-ups are still slow afterwards. */
const POOLED_MIN = 64
const POOLED_MAX = 2048

/**
 * Looks up single records. Nearly all are in the memory of LevelDB or of the operating system, and take microseconds, less than a
 * crossing into the thread pool and back. So look-ups run on the event loop until several are slow. The thread pool then takes
 * the next ones, because a slow disk must not block other requests.
 */
export class LookUps {
  readonly #engine: Engine
  #pooledLeft: number
  #pooledNext = POOLED_MIN
  #excessMs = 0

  /** @param slowMs 0: all look-ups use the thread pool. */
  constructor(
    engine: Engine,
    readonly slowMs = SLOW_MS,
  ) {
    this.#engine = engine
    this.#pooledLeft = slowMs > 0 ? 0 : Number.POSITIVE_INFINITY
  }

  /** True when the next look-up runs on the event loop. */
  get areQuick(): boolean {
    return this.#pooledLeft === 0
  }

  get(key: Buffer): Buffer | undefined | Promise<Buffer | undefined> {
    if (this.areQuick) return this.getSync(key)
    this.#pooledLeft--
    return this.#engine.get(key)
  }

  getSync(key: Buffer): Buffer | undefined {
    const beganAtMs = performance.now()
    const bytes = this.#engine.getSync(key)
    this.#took(performance.now() - beganAtMs)
    return bytes
  }

  #took(ms: number): void {
    const slowMs = ms < this.slowMs ? 0 : Math.min(ms, COUNTED_MS_MAX)
    this.#excessMs = Math.max(0, this.#excessMs + slowMs - ALLOWANCE_MS)
    if (this.#excessMs === 0) this.#pooledNext = POOLED_MIN
    if (this.#excessMs < EXCESS_MS_MAX) return
    this.#excessMs = EXCESS_MS_MAX // The excess stays, so the next slow look-up is one too many.
    this.#pooledLeft = this.#pooledNext
    this.#pooledNext = Math.min(2 * this.#pooledNext, POOLED_MAX)
  }
}
