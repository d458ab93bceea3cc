import type { FastifyRequest } from 'fastify'
import type { Grant } from '../../access/grant.js'
import { requireKey } from '../../bytes/byte-limits.js'
import { asBuffer } from '../../bytes/key-text.js'
import type { PageRequest, Selection, StreamRequest } from '../../changes/rules/changes-api.js'
import { type FeedPosition, parseFeedPosition } from '../../changes/rules/feed-position.js'
import { invalid } from '../../errors/kv-error.js'
import {
  FEED_LIMIT_MAX,
  FEED_RANGES_MAX,
  FEED_WAIT_MS_MAX,
  HEARTBEAT_MS_MAX,
  HEARTBEAT_MS_MIN,
  type Limits,
} from '../../limits.js'
import type { Timestamp } from '../../timestamp.js'
import { acceptedFormats } from './media-type.js'
import {
  bytesInQuery,
  queryBytes,
  queryFlag,
  queryInteger,
  queryList,
  queryText,
  type RawQuery,
  timestampOfInstant,
} from './query.js'
import { rangeOf } from './range.js'

export const FEED_PARAMETERS: readonly string[] = [
  'since_ts',
  'since_at',
  'snapshot',
  'keys_only',
  'old_values',
  'limit',
  'wait_ms',
  'heartbeat_ms',
]
export const SELECTION_PARAMETERS: readonly string[] = ['prefix', 'key', 'start', 'end']
export const SELECTION_LISTS: readonly string[] = ['prefix', 'key']

export type AskedFeed =
  | ({ readonly format: 'page' } & Omit<PageRequest, keyof Selection | 'consumer'>)
  | ({ readonly format: 'events' | 'ndjson' } & Omit<StreamRequest, keyof Selection | 'consumer'>)

type KeyLimits = Pick<Limits, 'keyBytesMax'>

export function feedSelection(query: RawQuery, { keyBytesMax }: KeyLimits): Selection {
  const prefixes = queryList(query, 'prefix')
  const keys = queryList(query, 'key')
  const start = queryBytes(query, 'start', keyBytesMax)
  const end = queryBytes(query, 'end', keyBytesMax)
  if (prefixes.length + keys.length === 0) return { start, end }
  if (query['start'] !== undefined || query['end'] !== undefined)
    throw invalid('start', 'give prefixes and keys, or start and end, not both')
  if (prefixes.length + keys.length > FEED_RANGES_MAX)
    throw invalid(prefixes.length > 0 ? 'prefix' : 'key', `give ${FEED_RANGES_MAX} prefixes and keys at most`)
  return {
    prefixes: prefixes.map((text) => bytesInQuery(text, 'prefix', keyBytesMax)),
    keys: keys.map((text) => {
      const key = bytesInQuery(text, 'key', keyBytesMax)
      requireKey(key, 'key', keyBytesMax)
      return key
    }),
  }
}

/** @throws KvError `forbidden` unless the grant covers the whole selection. */
export function requireSelection(grant: Grant, { prefixes = [], keys = [], start, end }: Selection): void {
  for (const prefix of prefixes) grant.requireRange(rangeOf({ prefix }, 'prefix'), 'prefix')
  for (const key of keys) grant.requireKey(key, 'key')
  if (prefixes.length + keys.length === 0) grant.requireRange({ start, end }, 'prefix')
}

export function askedFeed(request: FastifyRequest, limits: KeyLimits, present: Timestamp | undefined): AskedFeed {
  const { accept } = request.headers
  const query = request.query as RawQuery
  const [preferred] = acceptedFormats(accept)
  const format = preferred === 'events' || preferred === 'ndjson' ? preferred : 'page'
  const common = {
    keysOnly: queryFlag(query, 'keys_only') ?? false,
    oldValues: queryFlag(query, 'old_values') ?? false,
    waitMs: queryInteger(query, 'wait_ms', 0, FEED_WAIT_MS_MAX),
  }
  const snapshot = queryFlag(query, 'snapshot') ?? false
  const limit = queryInteger(query, 'limit', 1, FEED_LIMIT_MAX)
  const heartbeatMs = queryInteger(query, 'heartbeat_ms', HEARTBEAT_MS_MIN, HEARTBEAT_MS_MAX)
  const since = sinceOf(query)
  if (snapshot && since !== undefined) throw invalid('snapshot', 'snapshot does not go with since_ts or since_at')
  const position = lastEventId(request, limits)
  if (format === 'page') {
    if (snapshot) throw streamsOnly('snapshot')
    if (heartbeatMs !== undefined) throw streamsOnly('heartbeat_ms')
    if (position?.snapshotKey !== undefined) throw invalid('last-event-id', 'Last-Event-ID is that of a stream')
    return { ...common, format, limit, sinceTs: position?.ts ?? since ?? present }
  }
  if (limit !== undefined) throw invalid('limit', 'limit is for pages of JSON: a stream has no end')
  const options = { ...common, format, heartbeatMs }
  if (position?.snapshotKey !== undefined)
    return { ...options, snapshotAfter: { ts: position.ts, key: position.snapshotKey } }
  if (position !== undefined) return { ...options, sinceTs: position.ts }
  return snapshot ? { ...options, snapshot } : { ...options, sinceTs: since ?? present }
}

function streamsOnly(name: string): Error {
  return invalid(name, `${name} is for streams: accept text/event-stream or application/x-ndjson`)
}

function sinceOf(query: RawQuery): Timestamp | undefined {
  const ts = queryInteger(query, 'since_ts', 0, Number.MAX_SAFE_INTEGER)
  const at = queryText(query, 'since_at')
  if (at === undefined) return ts
  if (ts !== undefined) throw invalid('since_at', 'give since_ts or since_at, not both')
  return timestampOfInstant('since_at', at)
}

// ---- Positions

/** `feedPositionText` for a position in a snapshot, made by Node: a stream has one per pair. */
export function snapshotId(ts: Timestamp, key: Uint8Array): string {
  return `s.${ts}.${asBuffer(key).toString('base64url')}`
}

/** @returns undefined when there is none. @throws KvError `invalid_argument` for an id that no stream has sent. */
function lastEventId(request: FastifyRequest, { keyBytesMax }: KeyLimits): FeedPosition | undefined {
  const id = request.headers['last-event-id']
  const position = typeof id === 'string' ? parseFeedPosition(id) : undefined
  if (position?.snapshotKey === undefined) {
    const ts = lastEventTs(request)
    return ts === undefined ? undefined : { ts }
  }
  if (position.snapshotKey.length > keyBytesMax) throw malformedId()
  return position
}

/** The timestamp in `Last-Event-ID`; undefined when there is none. @throws KvError `invalid_argument` */
export function lastEventTs(request: FastifyRequest): Timestamp | undefined {
  const id = request.headers['last-event-id']
  if (id === undefined || id === '') return undefined // Browsers send an empty one for none.
  const ts = typeof id === 'string' && /^\d{1,16}$/.test(id) ? Number(id) : Number.NaN
  if (Number.isSafeInteger(ts)) return ts
  throw malformedId()
}

function malformedId(): Error {
  return invalid('last-event-id', 'Last-Event-ID is not one that a stream has given')
}

export function resyncPath(path: string, query: RawQuery): string {
  const kept = ['prefix', 'key', 'start', 'end', 'keys_only', 'old_values', 'heartbeat_ms'].flatMap((name) =>
    queryList(query, name).map((value) => `${name}=${value.replace(/[^\w\-.~%]/gu, encodeURIComponent)}`),
  )
  return `${path}?${[...kept, 'snapshot=true'].join('&')}`
}
