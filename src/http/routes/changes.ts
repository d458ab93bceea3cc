import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Grant } from '../../access/grant.js'
import { entryCost } from '../../bytes/answer-size.js'
import type { ChangesApi, FeedEvent, FeedPage, PageRequest, Selection } from '../../changes/rules/changes-api.js'
import { noSuchConsumer } from '../../changes/rules/consumer.js'
import { isKvError, KvError } from '../../errors/kv-error.js'
import { sleep } from '../../event-loop/sleep.js'
import { ENDED_WAIT_MS, FEED_HEAD_MS } from '../../limits.js'
import { keyRangeOf } from '../../percolator/given-range.js'
import type { Timestamp } from '../../timestamp.js'
import { callerOf } from '../admission/access.js'
import { hangUp, whenOver } from '../connections/answer-end.js'
import { EventStream } from '../connections/event-stream.js'
import { answer, answerFormat } from '../wire/answer.js'
import { errorText } from '../wire/event-text.js'
import {
  type AskedFeed,
  askedFeed,
  FEED_PARAMETERS,
  feedSelection,
  requireSelection,
  resyncPath,
  SELECTION_LISTS,
  SELECTION_PARAMETERS,
} from '../wire/feed-query.js'
import { wireTxn } from '../wire/feed-text.js'
import { jsonPage, msgpackPage } from '../wire/long-page.js'
import { CONTENT_TYPE } from '../wire/media-type.js'
import { nameInPath } from '../wire/name.js'
import type { RawQuery } from '../wire/query.js'
import { redactKeys } from '../wire/redaction.js'
import * as schemas from '../wire/schemas/changes.js'
import type { AppContext } from './context.js'
import { FeedStreams } from './feed-stream.js'

const NO_VALUE = new Uint8Array(0)
const CONSUMER_CHANGES = '/v1/consumers/:name/changes'

interface FeedOf {
  readonly selection: Selection
  /** Position at which the feed begins, unless the request has one. Absent: now. */
  readonly position?: Timestamp
  /** @throws KvError unless the grant covers all of it. */
  readonly requires: (grant: Grant) => void
  /** Path of the feed that begins with a snapshot. */
  readonly resync: () => string
}

export function changeRoutes(app: FastifyInstance, context: AppContext): void {
  const feeds = new Feeds(context)
  const config = {
    access: 'read',
    query: [...SELECTION_PARAMETERS, ...FEED_PARAMETERS],
    queryLists: SELECTION_LISTS,
  } as const
  app.get('/v1/changes', { schema: schemas.changes, config }, async (request, reply) => {
    const query = request.query as RawQuery
    const selection = feedSelection(query, context.limits)
    const requires = (grant: Grant): void => requireSelection(grant, selection)
    requires(request.grant)
    return feeds.answer(request, reply, { selection, requires, resync: () => resyncPath('/v1/changes', query) })
  })

  const ofConsumer = { access: 'read', query: FEED_PARAMETERS } as const
  app.get(CONSUMER_CHANGES, { schema: schemas.changes, config: ofConsumer }, async (request, reply) => {
    const name = nameInPath(request, 'consumer')
    const { range, position } = await context.database.changes.consumers.get(name)
    const selection = keyRangeOf(range)
    const requires = (grant: Grant): void => {
      if (!grant.mayAccessRange(selection)) throw noSuchConsumer(name)
    }
    requires(request.grant)
    const path = CONSUMER_CHANGES.replace(':name', name)
    return feeds.answer(request, reply, {
      selection,
      position,
      requires,
      resync: () => resyncPath(path, request.query as RawQuery),
    })
  })
}

/** Answers requests for a feed with a page or a stream. */
class Feeds {
  readonly #context: AppContext
  readonly #changes: ChangesApi
  readonly #streams = new FeedStreams()

  constructor(context: AppContext) {
    this.#context = context
    this.#changes = context.database.changes
  }

  /** @throws KvError `invalid_argument`, `overloaded`, `ts_below_safe_point` with `resync`. */
  async answer(request: FastifyRequest, reply: FastifyReply, feed: FeedOf): Promise<FastifyReply> {
    const asked = askedFeed(request, this.#context.limits, feed.position)
    try {
      if (asked.format === 'page') return await this.#page(request, reply, feed, asked)
      return await this.#stream(request, reply, feed, asked)
    } catch (error) {
      throw withResync(error, feed)
    }
  }

  async #page(
    request: FastifyRequest,
    reply: FastifyReply,
    { selection, requires }: FeedOf,
    { format: _, waitMs = 0, ...asked }: Extract<AskedFeed, { format: 'page' }>,
  ): Promise<FastifyReply> {
    const query = { ...selection, ...asked }
    let page: FeedPage = await this.#changes.page({ ...query, signal: hangUp(reply.raw) })
    if (page.txns.length === 0 && waitMs > 0) {
      const watch = this.#context.traffic.openWatch(request, reply, { requires, endedWaitMs: ENDED_WAIT_MS })
      try {
        page = await this.#changes.page({ ...query, sinceTs: page.nextTs, waitMs, signal: watch.signal })
      } finally {
        watch.end()
      }
      if (watch.error?.code === 'unauthorized' || watch.error?.code === 'forbidden') throw watch.error
    }
    if (page.rest !== undefined) return this.#longPage(request, reply, page, page.rest, query)
    const { txns, resolvedTs, nextTs } = page
    return answer(request, reply, { txns: txns.map(wireTxn), resolvedTs, nextTs })
  }

  /** Sends a page whose transactions are too long for memory while it is read, in parts as on a stream. */
  async #longPage(
    request: FastifyRequest,
    reply: FastifyReply,
    { txns, nextTs: sinceTs }: FeedPage,
    rest: NonNullable<FeedPage['rest']>,
    query: PageRequest,
  ): Promise<FastifyReply> {
    const { traffic, database } = this.#context
    const lease = database.store.answers.lease(callerOf(request))
    whenOver(reply.raw, () => {
      lease.end()
      void rest.return({ resolvedTs: 0, nextTs: 0 })
    })
    traffic.openStream(reply)
    for (const { changes } of txns) for (const { value } of changes) lease.hold(entryCost(value ?? NO_VALUE))
    const format = answerFormat(request.headers.accept)
    reply.header('content-type', CONTENT_TYPE[format])
    if (request.method === 'HEAD') return reply.send()
    // MessagePack writes the length of a list first.
    const count = format === 'json' ? 0 : await this.#countTxns({ ...query, sinceTs, signal: hangUp(reply.raw) })
    return reply.send(Readable.from(format === 'json' ? jsonPage(txns, rest) : msgpackPage(txns, rest, count)))
  }

  /** Counts the transactions, or parts, of a long page without keeping them. */
  async #countTxns(query: PageRequest): Promise<number> {
    const { txns, rest } = await this.#changes.page(query)
    let count = txns.length
    if (rest !== undefined) for await (const _ of rest) count++
    return count
  }

  async #stream(
    request: FastifyRequest,
    reply: FastifyReply,
    feed: FeedOf,
    { format, ...asked }: Extract<AskedFeed, { format: 'events' | 'ndjson' }>,
  ): Promise<FastifyReply> {
    const { traffic, limits, database, report } = this.#context
    const { answers: budget } = database.store
    const options = { format, budget, caller: callerOf(request), stalledMsMax: limits.stalledMsMax }
    if (request.method === 'HEAD') {
      new EventStream(reply, options).end()
      return reply
    }
    let stream: EventStream | undefined
    /** Ends the stream with an error: it is too late for a status. */
    const fail = (error: unknown): void => {
      const { body } = report(withResync(error, feed), request.id)
      stream?.end(errorText(format, request.grant.isScoped ? redactKeys(body, request.grant) : body))
    }
    const watch = traffic.openWatch(request, reply, {
      requires: feed.requires,
      endedWaitMs: format === 'ndjson' ? ENDED_WAIT_MS : undefined, // Lines have no heartbeat that would show whether the client is there.
      ended: (error) => error && fail(error),
    })
    const batches = this.#changes.stream({ ...feed.selection, ...asked, signal: watch.signal })
    const first = batches.next()
    try {
      await Promise.race([first, sleep(FEED_HEAD_MS, watch.signal).catch(() => {})])
      if (watch.error !== undefined) throw watch.error
    } catch (error) {
      watch.end()
      void batches.return()
      throw error
    }
    stream = new EventStream(reply, options)
    try {
      await this.#streams.send(stream, format, withFirst(first, batches))
      stream.end()
    } catch (error) {
      fail(error)
    }
    watch.end()
    return reply
  }
}

async function* withFirst(
  first: Promise<IteratorResult<readonly FeedEvent[], void>>,
  rest: AsyncGenerator<readonly FeedEvent[], void>,
): AsyncGenerator<readonly FeedEvent[], void> {
  try {
    const { value, done } = await first
    if (done) return
    yield value
    yield* rest
  } finally {
    await rest.return()
  }
}

function withResync(error: unknown, { resync }: FeedOf): unknown {
  if (!isKvError(error, 'ts_below_safe_point')) return error
  return new KvError('ts_below_safe_point', error.message, { ...error.fields, resync: resync() })
}
