import { sleep } from '../../../event-loop/sleep.js'
import { TABLE_WAIT_MS_MAX } from '../../../limits.js'
import { isCertain, unavailable } from './grpc-failures.js'

export const CALL_MS = 5000
const FIRST_PAUSE_MS = 10
const LONGEST_PAUSE_MS = 500

/** The tries of one call. The pauses between them double, and are random, so that many callers do not come at once. */
export class Patience {
  readonly #waitMs: number
  readonly #endsAt: number
  #pauseMs = FIRST_PAUSE_MS

  constructor(waitMs: number = TABLE_WAIT_MS_MAX) {
    this.#waitMs = waitMs
    this.#endsAt = performance.now() + waitMs
  }

  /** Leaves time for a second try. */
  get callMs(): number {
    return Math.max(1, Math.min(CALL_MS, this.#waitMs / 2, this.#endsAt - performance.now()))
  }

  /** Returns when another try is due. @throws KvError `storage_unavailable` when the time is over or the failure is certain. */
  async after(error: unknown): Promise<void> {
    const pauseMs = this.#pauseMs * (0.5 + Math.random() / 2)
    if (isCertain(error) || performance.now() + pauseMs >= this.#endsAt) throw unavailable(error)
    this.#pauseMs = Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2)
    await sleep(pauseMs)
  }
}
