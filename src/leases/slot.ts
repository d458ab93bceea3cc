import type { Ranked } from '../bytes/min-heap.js'
import type { StoredLease } from './rules/lease.js'
import type { Queue } from './waiting-holders.js'

/** What is known of all names together. */
export interface SlotCounts {
  /** Slots with `ended`. */
  ending: number
}

/** A name that is held, was held, or is about to be. Ranked by the end of its term. */
export class Slot implements Ranked {
  rank = 0
  place = -1
  /** The last grant. It is in force until `rank`. */
  lease: StoredLease | undefined
  #ended: StoredLease | undefined
  /** One of them that was locked. */
  lockedKey: Uint8Array | undefined
  /** The next try, and the pause before it. */
  endsAgainAtMs = Number.NEGATIVE_INFINITY
  endsAgainMs = 0
  readonly nextTry = new Try(this)
  /** Keys may be attached to `lease`. */
  hasKeys = false
  /** A record of it may stand on disk. */
  hasRecord = false
  /** That record says that the lease is over. */
  isEnding = false
  /** `ttlMs` of that record; undefined: not known. */
  storedTtlMs: number | undefined
  /** Its record is being written or removed, and everything else waits for that. Never rejects. */
  writing: Promise<void> | undefined
  readonly queue: Queue = new Set()

  constructor(
    readonly name: string,
    readonly counts: SlotCounts,
  ) {}

  /** The last grant, if it is over and keys that were attached to it are still to be deleted. Nobody is granted the lease before that. */
  get ended(): StoredLease | undefined {
    return this.#ended
  }
  set ended(lease: StoredLease | undefined) {
    this.counts.ending += Number(lease !== undefined) - Number(this.#ended !== undefined)
    this.#ended = lease
  }

  /** The keys of the last grant are deleted. */
  hasEnded(): void {
    this.ended = undefined
    this.endsAgainAtMs = Number.NEGATIVE_INFINITY
    this.endsAgainMs = 0
  }
}

/** A place among the next tries to delete the keys of leases. Ranked by `endsAgainAtMs`. */
export class Try implements Ranked {
  rank = 0
  place = -1

  constructor(readonly slot: Slot) {}
}
