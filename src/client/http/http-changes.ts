import type {
  ChangesApi,
  FeedChange,
  FeedEvent,
  KeyState,
  StreamRequest,
  WatchRequest,
} from '../../changes/rules/changes-api.js'
import { feedPositionText, parseFeedPosition } from '../../changes/rules/feed-position.js'
import { isKvError } from '../../errors/kv-error.js'
import { signalOf } from '../../event-loop/lazy-signal.js'
import { onAbort } from '../../event-loop/on-abort.js'
import { FEED_HEAD_MS, HEARTBEAT_MS_DEFAULT } from '../../limits.js'
import type { Version } from '../../percolator/api.js'
import type { Timestamp } from '../../timestamp.js'
import { withDeadline } from '../deadline.js'
import { BOOLEAN, INTEGER, listOf, optional, orNull, record, type Shape, TEXT } from './answer-shape.js'
import { HttpConsumers } from './http-consumers.js'
import { errorOf } from './http-problem.js'
import { type HttpStream, type HttpStreamRequest, type HttpTransport, isAway } from './http-transport.js'
import { JSON_BYTES, type JsonBytes, jsonBytes } from './json-bytes.js'
import { keyPath, percentEncode } from './key-path.js'
import { type ServerError, unexpectedAnswer } from './server-error.js'
import { type ServerSentEvent, serverSentEvents } from './server-sent-events.js'

interface WireVersion {
  readonly value: JsonBytes
  readonly commit_ts: Timestamp
  readonly expire_ts?: Timestamp
}

interface WireChange {
  readonly key: JsonBytes
  readonly op: FeedChange['op']
  readonly value?: JsonBytes
  readonly old?: WireVersion | null
  readonly expire_ts?: Timestamp
  readonly end?: JsonBytes
}

interface WireTxn {
  readonly commit_ts: Timestamp
  readonly start_ts: Timestamp
  readonly changes: readonly WireChange[]
  readonly part?: number
  readonly is_last?: boolean
}

interface WirePair {
  readonly key: JsonBytes
  readonly value?: JsonBytes
  readonly commit_ts: Timestamp
  readonly expire_ts?: Timestamp
}

const PAIR = record({
  key: JSON_BYTES,
  value: optional(JSON_BYTES),
  commit_ts: INTEGER,
  expire_ts: optional(INTEGER),
})
const TXN = record({
  commit_ts: INTEGER,
  start_ts: INTEGER,
  part: optional(INTEGER),
  is_last: optional(BOOLEAN),
  changes: listOf(
    record({
      key: JSON_BYTES,
      op: TEXT,
      value: optional(JSON_BYTES),
      old: optional(orNull(record({ value: JSON_BYTES, commit_ts: INTEGER }))),
      expire_ts: optional(INTEGER),
      end: optional(JSON_BYTES),
    }),
  ),
})
const STATE = record({ value: optional(JSON_BYTES), commit_ts: optional(INTEGER) })

/** A connection that is silent for this many heartbeats counts as dead. */
const HEARTBEATS_MISSED_MAX = 3
const SILENT_MS_MIN = 1000
/** Longest silence of a watch, whose heartbeats the server chooses. */
const WATCH_SILENT_MS_MAX = 90_000

/**
 * The feed over HTTP, as server-sent events. Each call is one connection. It ends when the connection breaks or the server
 * stops.
 */
export class HttpChanges implements Pick<ChangesApi, 'stream' | 'watch' | 'consumers'> {
  readonly consumers: HttpConsumers
  readonly #transport: HttpTransport
  readonly #timeoutMs: number | undefined

  /** @param timeoutMs longest time until the server begins to answer. */
  constructor(transport: HttpTransport, timeoutMs?: number) {
    this.#transport = transport
    this.#timeoutMs = timeoutMs
    this.consumers = new HttpConsumers(transport)
  }

  async *stream(request: StreamRequest): AsyncGenerator<readonly FeedEvent[], void> {
    const { heartbeatMs = HEARTBEAT_MS_DEFAULT, signal } = request
    const silentMsMax = Math.max(SILENT_MS_MIN, HEARTBEATS_MISSED_MAX * heartbeatMs)
    for await (const events of this.#events(pathOf(request), positionOf(request), silentMsMax, signalOf(signal)))
      yield events.map(feedEventOf)
  }

  async *watch(request: WatchRequest): AsyncGenerator<KeyState, void> {
    const { key, seenTs, signal } = request
    const path = keyPath(key)
    if (path === undefined) return yield* this.#watchByFeed(request)
    const seen = seenTs === undefined ? undefined : String(seenTs)
    for await (const events of this.#events(path, seen, WATCH_SILENT_MS_MAX, signalOf(signal)))
      for (const event of events) yield keyStateOf(event)
  }

  /** Watches a key that has no path, by the feed. It cannot know whether the caller has seen the state. */
  async *#watchByFeed({ key, signal }: WatchRequest): AsyncGenerator<KeyState, void> {
    let state: KeyState = { found: false, commitTs: 0 }
    for await (const events of this.stream({ keys: [key], snapshot: true, signal }))
      for (const event of events) {
        if (event.type === 'pair') state = stateOf(event.value, event.commitTs, event.expireTs)
        else if (event.type === 'txn')
          yield stateOf(event.changes.at(-1)?.value, event.commitTs, event.changes.at(-1)?.expireTs)
        else if (event.type === 'snapshot_end') yield state
      }
  }

  /** @throws KvError `deadline_exceeded`, and the errors of the transport. */
  async #begun(request: HttpStreamRequest): Promise<HttpStream> {
    const { signal } = request
    if (this.#timeoutMs === undefined || signal?.aborted) return this.#transport.stream(request)
    const stop = new AbortController()
    const unlisten = onAbort(signal, () => stop.abort(signal?.reason))
    const beginning = this.#transport.stream({ ...request, signal: stop.signal })
    try {
      const { chunks, close } = await withDeadline(this.#timeoutMs + FEED_HEAD_MS, undefined, () => beginning)
      const end = (): void => {
        unlisten()
        close()
      }
      return { chunks, close: end }
    } catch (error) {
      unlisten()
      stop.abort(error)
      throw error
    }
  }

  /** @throws KvError or ServerError, as the server answered, also within the stream. */
  async *#events(
    path: string,
    lastEventId: string | undefined,
    silentMsMax: number,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<readonly ServerSentEvent[], void> {
    const position = lastEventId === undefined ? {} : { 'last-event-id': lastEventId }
    const headers = { accept: 'text/event-stream', ...position }
    const { chunks, close } = await this.#begun({
      ...{ method: 'GET', path, headers, silentMsMax, signal, expects: 'events' },
    })
    try {
      for await (const events of serverSentEvents(chunks)) {
        const failed = events.findIndex(({ event }) => event === 'error')
        if (failed === -1) yield events
        else {
          yield events.slice(0, failed)
          throw problemIn(events[failed] as ServerSentEvent)
        }
      }
    } catch (error) {
      if (!isAway(error) || isKvError(error, 'storage_unavailable')) throw error
    } finally {
      close()
    }
  }
}

function pathOf(request: StreamRequest): string {
  const { prefixes = [], keys = [], start, end, consumer, sinceTs } = request
  const { snapshot, snapshotAfter, keysOnly, oldValues, heartbeatMs, waitMs } = request
  const query = [
    ...prefixes.map((prefix) => `prefix=${percentEncode(prefix)}`),
    ...keys.map((key) => `key=${percentEncode(key)}`),
    ...(start === undefined ? [] : [`start=${percentEncode(start)}`]),
    ...(end === undefined ? [] : [`end=${percentEncode(end)}`]),
    // `Last-Event-ID` has the same position and takes precedence. When a proxy removes the header, `since_ts` keeps the feed
    // from skipping changes.
    ...(sinceTs === undefined || consumer !== undefined ? [] : [`since_ts=${sinceTs}`]),
    ...(snapshot || snapshotAfter !== undefined ? ['snapshot=true'] : []),
    ...(keysOnly ? ['keys_only=true'] : []),
    ...(oldValues ? ['old_values=true'] : []),
    ...(heartbeatMs === undefined ? [] : [`heartbeat_ms=${heartbeatMs}`]),
    ...(waitMs === undefined ? [] : [`wait_ms=${waitMs}`]),
  ]
  const path = consumer === undefined ? '/v1/changes' : `/v1/consumers/${encodeURIComponent(consumer)}/changes`
  return `${path}?${query.join('&')}`
}

function positionOf({ sinceTs, snapshotAfter }: StreamRequest): string | undefined {
  if (snapshotAfter !== undefined) return feedPositionText({ ts: snapshotAfter.ts, snapshotKey: snapshotAfter.key })
  return sinceTs === undefined ? undefined : feedPositionText({ ts: sinceTs })
}

function feedEventOf({ event, data, id }: ServerSentEvent): FeedEvent {
  if (event === 'txn') {
    const { commit_ts: commitTs, start_ts: startTs, changes, part, is_last: isLast } = parsed<WireTxn>(data, TXN)
    const parts = part === undefined ? {} : { part, isLast }
    return { type: 'txn', commitTs, startTs, changes: changes.map(changeOf), ...parts }
  }
  if (event === 'resolved')
    return {
      type: 'resolved',
      resolvedTs: parsed<{ resolved_ts: Timestamp }>(data, record({ resolved_ts: INTEGER })).resolved_ts,
    }
  if (event === 'snapshot_end')
    return { type: 'snapshot_end', ts: parsed<{ ts: Timestamp }>(data, record({ ts: INTEGER })).ts }
  if (event === 'pair') {
    const { key, value, commit_ts: commitTs, expire_ts: expireTs } = parsed<WirePair>(data, PAIR)
    const ts = parseFeedPosition(id)?.ts
    if (ts !== undefined)
      return {
        type: 'pair',
        ts,
        key: jsonBytes(key),
        commitTs,
        ...(value === undefined ? {} : { value: jsonBytes(value) }),
        ...(expireTs === undefined ? {} : { expireTs }),
      }
  }
  throw unexpected(event)
}

function changeOf({ key, op, value, old, expire_ts: expireTs, end }: WireChange): FeedChange {
  return {
    key: jsonBytes(key),
    op,
    ...(value === undefined ? {} : { value: jsonBytes(value) }),
    ...(old === undefined ? {} : { old: old && versionOf(old) }),
    ...(expireTs === undefined ? {} : { expireTs }),
    ...(end === undefined ? {} : { end: jsonBytes(end) }),
  }
}

function versionOf({ value, commit_ts: commitTs, expire_ts: expireTs }: WireVersion): Version {
  return { value: jsonBytes(value), commitTs, ...(expireTs === undefined ? {} : { expireTs }) }
}

function keyStateOf({ event, data }: ServerSentEvent): KeyState {
  if (event !== 'value' && event !== 'absent') throw unexpected(event)
  const { value, commit_ts: commitTs = 0, expire_ts: expireTs } = parsed<Partial<WirePair>>(data, STATE)
  return stateOf(value === undefined ? undefined : jsonBytes(value), commitTs, expireTs)
}

function stateOf(value: Uint8Array | undefined, commitTs: Timestamp, expireTs?: Timestamp): KeyState {
  if (value === undefined) return { found: false, commitTs }
  return expireTs === undefined ? { found: true, value, commitTs } : { found: true, value, commitTs, expireTs }
}

function parsed<T>(data: string, shape: Shape): T {
  try {
    const message: unknown = JSON.parse(data)
    if (shape(message)) return message as T
  } catch {}
  throw unexpectedAnswer(200, 'a stream with an event that cannot be read')
}

function problemIn({ data }: ServerSentEvent): Error {
  const { status = 500 } = parsed<{ status?: number }>(data, record({ status: optional(INTEGER) }))
  return errorOf(status, 'application/problem+json', new TextEncoder().encode(data))
}

const EVENT_NAME_SHOWN = 64

function unexpected(event: string): ServerError {
  return unexpectedAnswer(200, `a stream with an unknown event "${event.slice(0, EVENT_NAME_SHOWN)}"`)
}
