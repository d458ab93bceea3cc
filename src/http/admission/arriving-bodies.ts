import { STALLED_BODY_BYTES_PER_S } from '../../limits.js'

const WINDOW_MS = 1000

export interface ArrivingBody {
  readonly heldBytes: number
  /** Stops reading the body, releases its bytes and answers its client with an error. */
  refuse(): void
}

/** When a body last made progress, and the bytes it held then. */
interface Progress {
  readonly bytes: number
  readonly atMs: number
}

/** Long bodies that are arriving, ordered by their last progress, oldest first. */
export class ArrivingBodies {
  readonly #progress = new Map<ArrivingBody, Progress>()

  remove(body: ArrivingBody): void {
    this.#progress.delete(body)
  }

  /** Call for each piece. Fewer than STALLED_BODY_BYTES_PER_S since the last progress do not count as progress. */
  moved(body: ArrivingBody): void {
    const before = this.#progress.get(body)
    if (before !== undefined && body.heldBytes - before.bytes < STALLED_BODY_BYTES_PER_S) return
    this.#progress.delete(body) // Setting it again moves it to the end of the order.
    this.#progress.set(body, { bytes: body.heldBytes, atMs: performance.now() })
  }

  /** Bytes that refusing all stalled bodies would free. */
  get stalledBytes(): number {
    let bytes = 0
    for (const body of this.#stalled()) bytes += body.heldBytes
    return bytes
  }

  /** Refuses the body that has been stalled for longest. @returns false when no other body is stalled. */
  evictStalled(except: ArrivingBody): boolean {
    for (const body of this.#stalled()) {
      if (body === except) continue
      body.refuse()
      return true
    }
    return false
  }

  *#stalled(): Generator<ArrivingBody> {
    const sinceMs = performance.now() - WINDOW_MS
    for (const [body, { atMs }] of this.#progress) {
      if (atMs > sinceMs) return
      yield body
    }
  }
}
