import { ENTRY_BYTES } from '../bytes/answer-size.js'
import { KvError } from '../errors/kv-error.js'
import type { Limits } from '../limits.js'

type AnswerLimits = Pick<Limits, 'answerBytesMax' | 'answersBytesMax'>

interface Count {
  heldBytes: number
}

/** The memory of answers: of what reads have found, until the client has taken it. Counted by leases, and by nothing else. */
export class AnswerBudget {
  readonly #limits: AnswerLimits
  readonly #count: Count = { heldBytes: 0 }

  constructor(limits: AnswerLimits) {
    this.#limits = limits
  }

  /** Of all answers that are not taken yet. */
  get heldBytes(): number {
    return this.#count.heldBytes
  }

  /** Holds nothing yet. */
  lease(): AnswerLease {
    return new AnswerLease(this.#limits, this.#count)
  }

  /** Before a read of unknown size. @throws KvError `overloaded` */
  requireRoom(): void {
    if (this.heldBytes >= this.#limits.answersBytesMax) throw noRoom()
  }
}

/** What one answer holds: given back once, by `end`; afterwards it holds nothing any more. */
export class AnswerLease {
  readonly #limits: AnswerLimits
  readonly #count: Count
  #bytes = 0
  #isOver = false

  /** @internal */
  constructor(limits: AnswerLimits, count: Count) {
    this.#limits = limits
    this.#count = count
  }

  /** Of something that has been read. @throws KvError `payload_too_large`; `overloaded` where the others leave no room */
  grow(bytes: number): void {
    this.hold(bytes)
    const { answerBytesMax, answersBytesMax } = this.#limits
    if (this.#bytes > answerBytesMax) throw answerTooLarge(answerBytesMax)
    const { heldBytes } = this.#count
    if (heldBytes > answersBytesMax && heldBytes > this.#bytes) throw noRoom() // One alone always fits.
  }

  /** Of something that is to be sent whatever it takes. */
  hold(bytes: number): void {
    if (this.#isOver) return
    this.#bytes += bytes
    this.#count.heldBytes += bytes
  }

  end(): void {
    this.#count.heldBytes -= this.#bytes
    this.#bytes = 0
    this.#isOver = true
  }
}

function noRoom(): KvError<'overloaded'> {
  return new KvError('overloaded', 'answers that are being read or sent take too much memory', {})
}

/** @param limit in bytes. */
export function answerTooLarge(limit: number): KvError<'payload_too_large'> {
  const detail = `the answer takes over ${limit} bytes, ${ENTRY_BYTES} per key and per value included: ask for less`
  return new KvError('payload_too_large', detail, { limit })
}
