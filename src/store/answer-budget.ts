import { Shares } from '../access/shares.js'
import { ENTRY_BYTES } from '../bytes/answer-size.js'
import { KvError } from '../errors/kv-error.js'
import type { Limits } from '../limits.js'

type AnswerLimits = Pick<Limits, 'answerBytesMax' | 'answersBytesMax'>

export const CROWDED_MS = 50

interface Count {
  heldBytes: number
  readonly shares: Shares
}

/**
 * Limits the memory of answers: an answer counts from the read until the client has received it. Only leases change the count.
 */
export class AnswerBudget {
  readonly #limits: AnswerLimits
  readonly #count: Count = { heldBytes: 0, shares: new Shares() }

  constructor(limits: AnswerLimits) {
    this.#limits = limits
  }

  get heldBytes(): number {
    return this.#count.heldBytes
  }

  /** Half of the room is taken. Streams then wait and leave the rest to requests. */
  get isCrowded(): boolean {
    return this.heldBytes >= this.#limits.answersBytesMax / 2
  }

  hasRoomFor(caller: string | undefined): boolean {
    return this.#count.shares.hasRoom(caller, this.#limits.answersBytesMax)
  }

  lease(caller?: string): AnswerLease {
    return new AnswerLease(this.#limits, this.#count, caller)
  }

  /** Call before a read of unknown size. @throws KvError `overloaded` */
  requireRoom(): void {
    if (this.heldBytes >= this.#limits.answersBytesMax) throw noRoom()
  }
}

/** The bytes of one answer. `end` gives them back; calls after `end` have no effect. */
export class AnswerLease {
  readonly #limits: AnswerLimits
  readonly #count: Count
  readonly #caller: string | undefined
  #bytes = 0
  #isOver = false

  /** @internal */
  constructor(limits: AnswerLimits, count: Count, caller: string | undefined) {
    this.#limits = limits
    this.#count = count
    this.#caller = caller
  }

  /** Adds bytes that a read returned. @throws KvError `payload_too_large`; `overloaded` when other answers use the room. */
  grow(bytes: number): void {
    const { answerBytesMax, answersBytesMax } = this.#limits
    const { shares } = this.#count
    const hasRoom = this.#bytes === shares.of(this.#caller) || shares.hasRoom(this.#caller, answersBytesMax)
    this.hold(bytes)
    if (this.#bytes > answerBytesMax) throw answerTooLarge(answerBytesMax)
    const { heldBytes } = this.#count
    // A single answer is always admitted.
    if (!hasRoom || (heldBytes > answersBytesMax && heldBytes > this.#bytes)) throw noRoom()
  }

  hold(bytes: number): void {
    if (this.#isOver) return
    this.#bytes += bytes
    this.#count.heldBytes += bytes
    this.#count.shares.add(this.#caller, bytes)
  }

  end(): void {
    this.#count.heldBytes -= this.#bytes
    this.#count.shares.add(this.#caller, -this.#bytes)
    this.#bytes = 0
    this.#isOver = true
  }
}

export function noRoom(): KvError<'overloaded'> {
  return new KvError('overloaded', 'answers in progress take too much memory', {})
}

/** @param limit in bytes. @internal */
export function answerTooLarge(limit: number): KvError<'payload_too_large'> {
  const detail = `the answer takes over ${limit} bytes, ${ENTRY_BYTES} per key and per value included: ask for less`
  return new KvError('payload_too_large', detail, { limit })
}
