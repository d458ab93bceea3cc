import type { Grant } from '../../access/grant.js'
import type { SignalSource } from '../../event-loop/lazy-signal.js'
import { Stages, type TxnFacts } from '../../event-loop/stages.js'
import type { RouteMeter } from '../../meters/http-meters.js'
import type { AnswerLease } from '../../store/answer-budget.js'
import type { Flight } from '../admission/in-flight.js'
import { clientGone } from '../connections/answer-end.js'
import type { LetIn } from '../connections/let-in.js'
import type { AnswerText } from './answer-text.js'
import type { Asked } from './asked.js'
import type { HeaderBlock } from './header-block.js'

export interface Caller {
  readonly isTraced: boolean
  answered(call: Call): void
  /** Called when the call is refused because of overload. */
  shed(): void
}

export class Call {
  /** The next request on the connection. Answers are sent in the order of their requests. */
  next: Call | undefined
  answer: AnswerText | undefined
  /** Set when the request is admitted. */
  flight: Flight | undefined
  /** Counts a long answer. */
  lease: AnswerLease | undefined
  isGone = false
  /** Set before it is admitted. */
  meter: RouteMeter | undefined
  /** Id in its problem and in the log. */
  id: string | undefined
  /** Code of its problem. */
  errorCode: string | undefined
  /** For the trace of a write. */
  committed: TxnFacts | undefined
  /** Milliseconds by `performance.now()`. */
  readonly beganMs = performance.now()
  /** Later than `beganMs` when it had to wait for a turn of the event loop. */
  startedMs = this.beganMs
  endedMs = 0
  /** Set when it has to wait for more than the disk. */
  stages: Stages | undefined
  #isAborted = false
  #abort: AbortController | undefined
  #unfollow: (() => void) | undefined

  constructor(
    readonly asked: Asked,
    readonly headers: HeaderBlock,
    readonly grant: Grant,
    readonly letIn: LetIn | undefined,
    readonly bodyBytes: number,
    readonly caller: Caller,
  ) {}

  /** Aborts when the client hangs up, or its token is gone. */
  get signal(): SignalSource {
    this.stages ??= new Stages(this.caller.isTraced)
    const make = (): AbortSignal => {
      if (this.#abort !== undefined) return this.#abort.signal
      const abort = new AbortController()
      this.#abort = abort
      if (this.#isAborted) this.stopWaiting()
      this.#unfollow = this.letIn?.follow((error) => abort.abort(error))
      return abort.signal
    }
    const { letIn, stages } = this
    return Object.assign(make, { stages, require: letIn && (() => letIn.require()) })
  }

  /** Ends its present and future waits for locks. */
  stopWaiting(): void {
    this.#isAborted = true
    this.#abort?.abort(clientGone())
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
    this.#unfollow?.()
    this.answer = answer
    this.endedMs = performance.now()
    this.meter?.answered(answer.status, (this.endedMs - this.beganMs) / 1000)
    this.caller.answered(this)
  }
}
