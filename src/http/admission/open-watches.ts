import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Grant } from '../../access/grant.js'
import { Shares } from '../../access/shares.js'
import { KvError } from '../../errors/kv-error.js'
import { whenInputEnds, whenOver } from '../connections/answer-end.js'
import { callerOf } from './access.js'

export interface WatchOptions {
  /** See `LetIn.follow`. */
  readonly requires?: (grant: Grant) => void
  /**
   * Called once, unless `end` was called before. @param error the server closes, or the token has lost its rights; undefined:
   * the client has gone.
   */
  readonly ended?: (error: KvError | undefined) => void
  /**
   * How long the wait goes on after the client has ended its side of the connection; then it is answered as if its time were
   * over, because most such clients have gone. 0 where an answer hands out something that would be lost. Absent: it goes on,
   * because writes show whether the client has gone.
   */
  readonly endedWaitMs?: number | undefined
}

export interface Watch {
  /** Aborts when the client hangs up, when the server closes, and when the token has lost its rights. */
  readonly signal: AbortSignal
  readonly isEnded: boolean
  /** Whether it ended because the client has ended its side. An answer may still reach the client. */
  readonly hasClientEnded: boolean
  /** The reason of an end while the client was still connected. */
  readonly error: KvError | undefined
  /** Idempotent. */
  end(): void
}

class OpenWatch implements Watch {
  #abort: AbortController | undefined
  #error: KvError | undefined
  #isEnded = false
  #isAborted = false
  unfollow: (() => void) | undefined
  #lingering: NodeJS.Timeout | undefined
  readonly #forgetInput: (() => void) | undefined
  hasClientEnded = false

  constructor(
    readonly watches: OpenWatches,
    readonly caller: string | undefined,
    readonly options: WatchOptions,
    socket: unknown,
  ) {
    if (options.endedWaitMs !== undefined) this.#forgetInput = whenInputEnds(socket, this.#onClientEnd)
  }

  readonly #onClientEnd = (): void => {
    this.#lingering = setTimeout(() => {
      this.hasClientEnded = true
      this.hangUp()
    }, this.options.endedWaitMs)
  }

  /** Created at the first call, because thousands of watches need none. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController()
    if (this.#isAborted) this.#abort.abort(this.#error)
    return this.#abort.signal
  }
  get error(): KvError | undefined {
    return this.#error
  }

  get isEnded(): boolean {
    return this.#isEnded
  }

  end(): void {
    this.#isEnded = true
    this.unfollow?.()
    clearTimeout(this.#lingering)
    this.#forgetInput?.()
    this.watches.delete(this)
  }

  fail(error: KvError): void {
    if (this.#isEnded) return
    this.#error = error
    this.hangUp()
  }

  readonly hangUp = (): void => {
    if (this.#isEnded) return // The answer was sent: an abort would only cost time.
    this.end()
    this.#isAborted = true
    this.#abort?.abort(this.#error)
    this.options.ended?.(this.#error)
  }
}

export class OpenWatches {
  readonly #watches = new Set<OpenWatch>()
  readonly shares = new Shares()
  #isClosing = false

  get size(): number {
    return this.#watches.size
  }

  open(request: FastifyRequest, reply: FastifyReply, options: WatchOptions): Watch {
    const caller = callerOf(request)
    const watch = new OpenWatch(this, caller, options, request.raw.socket)
    this.#watches.add(watch)
    this.shares.add(caller, 1)
    whenOver(reply.raw, watch.hangUp)
    const { letIn } = request.raw
    watch.unfollow = letIn?.follow((error) => watch.fail(error), options.requires)
    if (this.#isClosing) watch.fail(closing())
    return watch
  }

  delete(watch: OpenWatch): void {
    if (this.#watches.delete(watch)) this.shares.add(watch.caller, -1)
  }

  close(): void {
    this.#isClosing = true
    for (const watch of this.#watches) watch.fail(closing())
  }
}

function closing(): KvError<'overloaded'> {
  return new KvError('overloaded', 'the server is shutting down', {})
}
