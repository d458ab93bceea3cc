import type { Grant } from '../../access/grant.js'
import { KvError } from '../../errors/kv-error.js'
import type { RouteMeter } from '../../meters/http-meters.js'
import type { AnswerLease } from '../../store/answer-budget.js'
import type { Flight } from '../admission/in-flight.js'
import type { AnswerText } from './answer-text.js'
import type { Asked } from './asked.js'
import type { HeaderBlock } from './header-block.js'

/** The connection on which a call came. */
export interface Caller {
  answered(call: Call): void
  /** The call is refused because of overload. */
  shed(): void
}

/** One request in the fast lane, from its arrival until its answer is written. */
export class Call {
  /** The next request on the connection. Answers are sent in the order of their requests. */
  next: Call | undefined
  answer: AnswerText | undefined
  /** Set when the request is admitted. */
  flight: Flight | undefined
  /** Counts a long answer. */
  lease: AnswerLease | undefined
  isGone = false
  readonly beganMs = performance.now()
  /** Set before it is admitted. */
  meter: RouteMeter | undefined
  #isAborted = false
  #abort: AbortController | undefined

  constructor(
    readonly asked: Asked,
    readonly headers: HeaderBlock,
    readonly grant: Grant,
    readonly bodyBytes: number,
    readonly caller: Caller,
  ) {}

  /** Aborts when the client hangs up. Made at the first call, as most requests never wait. */
  readonly signal = (): AbortSignal => {
    this.#abort ??= new AbortController()
    if (this.#isAborted) this.stopWaiting()
    return this.#abort.signal
  }

  /** Ends its waits for locks, present and future ones. */
  stopWaiting(): void {
    this.#isAborted = true
    this.#abort?.abort(new KvError('txn_not_found', 'the client has gone', {}))
  }

  hangUp(): void {
    this.isGone = true
    this.stopWaiting()
    this.lease?.end()
  }

  /** Idempotent. */
  end(answer: AnswerText): void {
    if (this.answer !== undefined) return
    this.flight?.end()
    this.answer = answer
    this.meter?.answered(answer.status, (performance.now() - this.beganMs) / 1000)
    this.caller.answered(this)
  }
}
