import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Grant } from '../../access/grant.js'
import type { KeyState } from '../../changes/rules/changes-api.js'
import type { Taken, Watcher, WatchListener } from '../../changes/watches.js'
import { invalid, isKvError } from '../../errors/kv-error.js'
import { ENDED_WAIT_MS, LONG_ANSWER_BYTES, WATCH_WAIT_MS_MAX } from '../../limits.js'
import type { GetAnswer } from '../../percolator/api.js'
import { CROWDED_MS } from '../../store/answer-budget.js'
import type { Timestamp } from '../../timestamp.js'
import { callerOf } from '../admission/access.js'
import type { Watch } from '../admission/open-watches.js'
import { hangUp } from '../connections/answer-end.js'
import { EventStream } from '../connections/event-stream.js'
import { answerVersion, noSuchKey } from '../wire/answer-version.js'
import { preconditionsOf, readCondition } from '../wire/etag.js'
import { errorText, stateText } from '../wire/event-text.js'
import { lastEventTs } from '../wire/feed-query.js'
import { queryInteger, type RawQuery } from '../wire/query.js'
import { redactKeys } from '../wire/redaction.js'
import type { AppContext } from './context.js'

export class KeyWatching {
  readonly #context: AppContext
  readonly #texts = new WeakMap<KeyState, Buffer>()

  constructor(context: AppContext) {
    this.#context = context
  }

  /**
   * Answers a read. An answer that would be 304, or 404 without `If-None-Match`, waits until the key changes.
   * @throws KvError `invalid_argument`, `overloaded`; `not_found` with `commitTs`.
   */
  async wait(
    request: FastifyRequest,
    reply: FastifyReply,
    { key, lockWaitMs }: { readonly key: Buffer; readonly lockWaitMs: number },
  ): Promise<FastifyReply> {
    const query = request.query as RawQuery
    const { database } = this.#context
    const waitMs = queryInteger(query, 'wait_ms', 0, WATCH_WAIT_MS_MAX) ?? 0
    const conditions = preconditionsOf(request.headers)
    if (query['ts'] !== undefined || query['at'] !== undefined)
      throw invalid('wait_ms', 'wait_ms does not go with ts or at')
    if (conditions.ifMatch !== undefined) throw invalid('if-match', 'If-Match does not go with wait_ms')
    const waits = ({ found, commitTs }: KeyState): boolean =>
      found ? readCondition(conditions, commitTs) === 304 : conditions.ifNoneMatch === undefined
    const read = () => database.get({ key }, () => ({ lockWaitMs, signal: hangUp(reply.raw) }))
    let state = stateOf(await read())
    if (waitMs > 0 && waits(state))
      state = (await this.#next(request, reply, key, waitMs, waits)) ?? stateOf(await read())
    if (!state.found) throw noSuchKey(key, state.commitTs)
    return answerVersion(request, reply, key, state)
  }

  /**
   * @returns undefined when the time is over, the client ends its side, or the server closes. @throws KvError when the key
   *   cannot be read.
   */
  #next(
    request: FastifyRequest,
    reply: FastifyReply,
    key: Buffer,
    waitMs: number,
    waits: (state: KeyState) => boolean,
  ): Promise<KeyState | undefined> {
    const { traffic, database } = this.#context
    return new Promise((resolve, reject) => {
      let watcher: Watcher | undefined
      let timer: NodeJS.Timeout | undefined
      let watch: Watch | undefined
      const end = (): void => {
        watcher?.close()
        watch?.end()
        clearTimeout(timer)
      }
      watch = traffic.openWatch(request, reply, {
        requires: (grant) => grant.requireKey(key, 'key'),
        endedWaitMs: ENDED_WAIT_MS,
        ended: (error) => {
          end()
          if (error === undefined || isKvError(error, 'overloaded')) resolve(undefined)
          else reject(error)
        },
      })
      const show = (state: KeyState): Taken => {
        if (waits(state)) return 'taken'
        end()
        resolve(state)
        return 'full'
      }
      const ended = (error: unknown): void => {
        end()
        if (error === undefined) resolve(undefined)
        else reject(error)
      }
      watcher = database.changes.watches.open(key, { show, ended })
      timer = setTimeout(() => ended(undefined), waitMs)
      if (watch.isEnded) end()
    })
  }

  /**
   * Sends the present state of the key, then the latest one whenever it has changed. @throws KvError `invalid_argument`,
   * `overloaded`
   */
  stream(request: FastifyRequest, reply: FastifyReply, key: Buffer): FastifyReply {
    const query = request.query as RawQuery
    for (const name of ['ts', 'at', 'wait_ms', 'lock_wait_ms'])
      if (query[name] !== undefined) throw invalid(name, `${name} does not go with text/event-stream`)
    if (request.headers['if-match'] !== undefined)
      throw invalid('if-match', 'If-Match does not go with text/event-stream')
    const seenTs = lastEventTs(request)
    const { database, limits, traffic, heartbeats } = this.#context
    const { stalledMsMax } = limits
    const { answers: budget } = database.store
    const options = { format: 'events', budget, caller: callerOf(request), stalledMsMax, heartbeats } as const
    if (request.method === 'HEAD') new EventStream(reply, options)
    else {
      const listener = new KeyStream(this.#context, this.#texts, request)
      const watch = traffic.openWatch(request, reply, {
        requires: (grant) => grant.requireKey(key, 'key'),
        ended: listener.ended,
      })
      if (watch.error !== undefined) throw watch.error
      listener.open(key, new EventStream(reply, options), seenTs)
    }
    return reply
  }
}

/** The stream of one key. It keeps no states: a client that falls behind skips to the latest. */
class KeyStream implements WatchListener {
  readonly #context: AppContext
  readonly #texts: WeakMap<KeyState, Buffer>
  readonly #requestId: string
  readonly #grant: Grant
  #stream: EventStream | undefined
  #watcher: Watcher | undefined

  constructor(context: AppContext, texts: WeakMap<KeyState, Buffer>, { id, grant }: FastifyRequest) {
    this.#context = context
    this.#texts = texts
    this.#requestId = id
    this.#grant = grant
  }

  open(key: Uint8Array, stream: EventStream, seenTs: Timestamp | undefined): void {
    this.#stream = stream
    if (!stream.isOver) this.#watcher = this.#context.database.changes.watches.open(key, this, seenTs)
  }

  show(state: KeyState): Taken {
    const { answers } = this.#context.database.store
    const stream = this.#stream as EventStream
    if (state.found && state.value.length >= LONG_ANSWER_BYTES && answers.isCrowded) {
      setTimeout(this.#resume, CROWDED_MS)
      return 'later'
    }
    if (stream.write(this.#textOf(state))) return 'taken'
    stream.whenTaken(this.#resume)
    return 'full'
  }

  /** Encoded once for all watchers of the key. */
  #textOf(state: KeyState): Buffer {
    let text = this.#texts.get(state)
    if (text === undefined) {
      text = Buffer.from(stateText((this.#watcher as Watcher).watched.key, state))
      this.#texts.set(state, text)
    }
    return text
  }

  readonly #resume = (): void => this.#watcher?.resume()

  readonly ended = (error: unknown): void => {
    this.#watcher?.close()
    if (error === undefined) this.#stream?.end()
    else {
      const { body } = this.#context.report(error, this.#requestId)
      this.#stream?.end(errorText('events', this.#grant.isScoped ? redactKeys(body, this.#grant) : body))
    }
  }
}

function stateOf(answer: GetAnswer): KeyState {
  return answer.found ? answer : { found: false, commitTs: answer.deletedTs ?? 0 }
}
