import { STALLED_BODY_BYTES_PER_S } from '../../limits.js'

const WINDOW_MS = 1000

/** One long body on its way. */
export interface ArrivingBody {
  readonly heldBytes: number
  /** Ends it: its bytes are given back, and its client is told. */
  refuse(): void
}

/** When a body last counted as moving, and how much of it was held then. */
interface Progress {
  readonly bytes: number
  readonly atMs: number
}

/** The long bodies that are arriving, the one that has stood still for longest first. */
export class ArrivingBodies {
  readonly #progress = new Map<ArrivingBody, Progress>()

  remove(body: ArrivingBody): void {
    this.#progress.delete(body)
  }

  /** A piece of it has come. A trickle is no progress. */
  moved(body: ArrivingBody): void {
    const before = this.#progress.get(body)
    if (before !== undefined && body.heldBytes - before.bytes < STALLED_BODY_BYTES_PER_S) return
    this.#progress.delete(body) // It goes to the end of the order.
    this.#progress.set(body, { bytes: body.heldBytes, atMs: performance.now() })
  }

  /** Bytes that `evictStalled` could free. */
  get stalledBytes(): number {
    let bytes = 0
    for (const body of this.#stalled()) bytes += body.heldBytes
    return bytes
  }

  /** Ends the body that has stood still for longest. @returns false where all others move. */
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
