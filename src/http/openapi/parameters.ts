import { LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX, type Limits, TIMEOUT_MS_MAX, TTL_MS_MAX } from '../../limits.js'
import type { Schema } from '../wire/schemas/schema.js'
import type { AnswerHeader, Parameter, RequestHeader } from './operation.js'

const Timestamp: Schema = { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER }
const Moment: Schema = { type: 'string', format: 'date-time' }
const Flag: Schema = { type: 'boolean' }
const Bytes: Schema = { type: 'string' }
const ETags: Schema = { type: 'string' }

/** Parameters of the query, by name, with their usual meaning. An entry of a call may override it. */
export const QUERY: Readonly<Record<string, Parameter>> = {
  ts: {
    description:
      'The snapshot to read; 410 below the safe point. One in the future sees what is committed now, and does not repeat. Default, and 0: now.',
    schema: Timestamp,
  },
  at: {
    description:
      'The snapshot to read, by the clock, as exactly as timestamps follow it: everything that was committed in that millisecond or before. RFC 3339. Does not go with `ts`.',
    schema: Moment,
  },
  lock_wait_ms: {
    description:
      'How long to wait for locks of other transactions, then 423. One that is over its time is ended. Default: 3000.',
    schema: { type: 'integer', minimum: 0, maximum: 3_600_000 },
  },
  timeout_ms: {
    description:
      'Deadline of the whole request, from its arrival: 504 `deadline_exceeded`, unless its commit has begun, which is waited for. Default: never.',
    schema: { type: 'integer', minimum: 1, maximum: TIMEOUT_MS_MAX },
  },
  ttl_ms: {
    description: 'The version is absent so many milliseconds later. Default: it does not expire.',
    schema: { type: 'integer', minimum: 1, maximum: TTL_MS_MAX },
  },
  expire_ts: {
    description: 'The version is absent from this timestamp on, at every snapshot. Does not go with `ttl_ms`.',
    schema: { type: 'integer', minimum: 1, maximum: Number.MAX_SAFE_INTEGER },
  },
  for_update: { description: 'Reads in order to write.', schema: Flag },
  prefix: { description: 'All keys that begin with it. Does not go with `start` or `end`.', schema: Bytes },
  key: {
    description: 'These keys. 100 with those of `prefix`; does not go with `start` or `end`.',
    schema: { type: 'array', items: Bytes, maxItems: 100 },
  },
  start: { description: 'First key of the range. Default: no bound.', schema: Bytes },
  end: { description: 'The range ends before this key. Default: no bound.', schema: Bytes },
  limit: {
    description: 'Entries of a page. Default: 100.',
    schema: ({ scanLimitMax }: Limits) => ({ type: 'integer', minimum: 1, maximum: scanLimitMax }),
  },
  reverse: { description: 'From the end of the range.', schema: Flag },
  keys_only: { description: 'No values.', schema: Flag },
  count_only: { description: 'Only the number of keys in the whole range, whatever `limit` says.', schema: Flag },
  cursor: { description: 'Of the page before: continues it.', schema: { type: 'string' } },
  since_ts: { description: 'Only changes above it; 0: from the beginning. Default: from now on.', schema: Timestamp },
  since_at: {
    description: 'Only changes that a read at that moment does not show. RFC 3339. Does not go with `since_ts`.',
    schema: Moment,
  },
  snapshot: {
    description:
      'Streams: first the pairs as of some timestamp, then the changes above it. Does not go with `since_ts` and `since_at`.',
    schema: Flag,
  },
  old_values: { description: 'Each change has the version before, `old`.', schema: Flag },
  wait_ms: {
    description:
      'Pages: how long to wait for the first transaction. Default: 0. Streams: they end that long after everything was sent; 0: at once. Default: never.',
    schema: { type: 'integer', minimum: 0, maximum: 60_000 },
  },
  heartbeat_ms: {
    description: 'Streams: `resolved` comes at least so often. Default: 5000.',
    schema: { type: 'integer', minimum: 100, maximum: 60_000 },
  },
  restart: { description: 'First removes what a restore left that was not completed.', schema: Flag },
}

export const LIST_QUERY: Readonly<Record<string, Parameter>> = {
  prefix: { description: 'Names that begin with it. Default: all.', schema: { type: 'string' } },
  limit: {
    description: `Entries of a page. Default: ${LIST_LIMIT_DEFAULT} of leases, and all of other lists.`,
    schema: { type: 'integer', minimum: 1, maximum: LIST_LIMIT_MAX },
  },
}

export const PATH: Readonly<Record<string, Parameter>> = {
  key: {
    description:
      'The key, percent-encoded: all but letters, digits and `-`, `.`, `_`, `~`. `%2F` and `/` are both a slash of the key; `%FF` is the byte 0xFF.',
    schema: { type: 'string' },
  },
  txn: { description: 'The transaction, as `begin` named it.', schema: { type: 'string' } },
  name: {
    description: 'Letters, digits, `.`, `_` and `-`.',
    schema: { type: 'string', pattern: '^[A-Za-z0-9._-]{1,128}$' },
  },
  pin: { description: 'The pin, as its creation named it.', schema: { type: 'string' } },
}

export const REQUEST_HEADERS: Readonly<Record<RequestHeader, Parameter>> = {
  'If-Match': {
    description:
      'One or more ETags, or `*`. Only if the present version is one of these (`*`: is there); otherwise 412.',
    schema: ETags,
  },
  'If-None-Match': {
    description:
      'One or more ETags, or `*`. Only if the present version is none of these (`*`: there is none); otherwise 412, and 304 of a read.',
    schema: ETags,
  },
  'Idempotency-Key': {
    description:
      'Makes the call take effect once: the same request under the same key within ten minutes, restarts included, gets the answer of the first one and writes nothing; another request under that key is 422. Only outcomes that succeeded are stored. A repeat waits while the first still runs. Where the outcome is too long (413), or too many are stored (503), nothing is written.',
    schema: { type: 'string', pattern: '^[ -~]{1,255}$' },
  },
  'Last-Event-ID': {
    description: 'Of the last event that came: the stream goes on after it. A malformed one is 400.',
    schema: { type: 'string' },
  },
}

export const ANSWER_HEADERS: Readonly<Record<AnswerHeader, Parameter>> = {
  ETag: { description: 'The version, in quotes.', schema: { type: 'string' } },
  'Expire-Ts': {
    description: 'The version is absent from this timestamp on. Absent: it does not expire.',
    schema: { type: 'integer' },
  },
  'Idempotency-Replayed': {
    description: 'This is the answer of an earlier request under the same `Idempotency-Key`.',
    schema: { type: 'string', enum: ['true'] },
  },
  'Snapshot-Ts': { description: 'The snapshot that is read; only of streams.', schema: { type: 'integer' } },
  'Content-Disposition': { description: 'A name for the file.', schema: { type: 'string' } },
}
