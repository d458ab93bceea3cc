import type { Operation, Operations } from '../operation.js'

const CONDITIONAL = 'Conditional by `If-Match` and `If-None-Match`, and exactly once under an `Idempotency-Key`.'

/** The common parts of both writes of one key. */
const WRITE = {
  headers: ['If-Match', 'If-None-Match', 'Idempotency-Key'],
  problems: [
    'key_locked',
    'write_conflict',
    'precondition_failed',
    'payload_too_large',
    'idempotency_mismatch',
    'ts_below_safe_point',
  ],
  answers: { 200: { headers: ['Idempotency-Replayed'] } },
} as const satisfies Partial<Operation>

export const keys: Operations = {
  'GET /v1/kv/{key}': {
    id: 'readKey',
    tag: 'Keys',
    summary: 'Read a key',
    description: `The bytes of the value, and its version as \`ETag\`. Reads the latest committed version, or a snapshot of the past with \`ts\` or \`at\`. Waits for locks of other transactions.

With \`wait_ms\` and \`If-None-Match\`, an answer that would be 304 waits until the key has another version, or none. Without \`If-None-Match\`, an answer that would be 404 waits until there is a value. When the time is over, it is answered as it stands. \`wait_ms\` does not go with \`ts\`, \`at\` and \`If-Match\`.

With \`Accept: text/event-stream\` the present state comes first, and then the latest whenever it is another, until the client hangs up. A client that is slow gets the latest only; [the feed](#readChanges) has every version. \`id\` is the \`commit_ts\`: who connects again with \`Last-Event-ID\`, as browsers do, is not told what it has seen. A comment comes every 20 seconds in which nothing else does. \`event: error\` ends the stream: on shutdown, or when the token is taken away.`,
    query: {
      wait_ms: {
        description: 'How long to wait for another version. Default: 0.',
        schema: { type: 'integer', minimum: 0, maximum: 60_000 },
      },
    },
    headers: ['If-None-Match', 'If-Match', 'Last-Event-ID'],
    problems: ['not_found', 'key_locked', 'precondition_failed', 'payload_too_large', 'ts_below_safe_point'],
    answers: {
      200: { description: 'The value, or a stream of its versions.', headers: ['ETag', 'Expire-Ts'] },
      304: { description: 'The key has the version that `If-None-Match` names.', headers: ['ETag', 'Expire-Ts'] },
    },
    head: { id: 'headKey', summary: 'Version and length of a key’s value' },
  },
  'PUT /v1/kv/{key}': {
    id: 'putKey',
    tag: 'Keys',
    summary: 'Write a key',
    description: `A transaction of its own. ${CONDITIONAL}

With \`ttl_ms\` (from the \`start_ts\` of the transaction on) or \`expire_ts\` the version expires: reads at or above that timestamp find no key, and those below it find the value, for as long as old versions are kept. Only a read of the latest version asks a clock, so others repeat. Nothing is written at that moment: it is no conflict and no new ETag, conditions and checks see an absent key (\`commit_ts\` 0), and a serializable transaction fails if what it has read expires before its \`commit_ts\`. Observers and feeds are told. A later write without either does not expire.`,
    bytes: 'The value, as it is, of any content type.',
    ...WRITE,
  },
  'DELETE /v1/kv/{key}': {
    id: 'deleteKey',
    tag: 'Keys',
    summary: 'Delete a key',
    description: `A transaction of its own. Deleting an absent key succeeds. ${CONDITIONAL}`,
    ...WRITE,
  },
  'GET /v1/kv': {
    id: 'scanKeys',
    tag: 'Keys',
    summary: 'Scan or count a range',
    description: `A page of pairs of one snapshot. A page that is not the last has a \`cursor\`, which holds the range, the order, the snapshot and the limit, and survives a restart; \`limit\`, \`keys_only\` and \`lock_wait_ms\` may be changed on the way. A page ends early, with a cursor, at 8 MiB of keys and values (\`--page-bytes-max\`).

With \`Accept: application/x-ndjson\` the pairs come one per line, in a stream, all of them unless \`limit\` is given. A failure after the first line cuts the connection: without a final chunk the stream is not whole. \`Snapshot-Ts\` names the snapshot of a stream.

A page waits for the locks of other transactions, so that it has every write that was acknowledged before. A count, and a stream without a limit, are of the snapshot just below the locks instead, where a transaction that lives has held them for a quarter of a second: \`ts\` says which. With \`ts\` or \`at\` they wait too.`,
    problems: ['key_locked', 'payload_too_large', 'ts_below_safe_point'],
    answers: { 200: { description: 'A page, a count, or a stream of pairs.', headers: ['Snapshot-Ts'] } },
  },
  'DELETE /v1/kv': {
    id: 'deleteRange',
    tag: 'Keys',
    summary: 'Delete the keys of a range',
    description: `Deletes the first \`limit\` keys that are present of \`prefix\`, or \`start\` and \`end\`, of which one must be given, in one transaction at one snapshot. A \`cursor\` in the answer means that there were more: the same request with it goes on after the last key. Each request is a transaction of its own. Exactly once under an \`Idempotency-Key\`. Unlike Percolator's \`delete_range\`, it keeps the older versions, and observers and feeds see it.`,
    headers: ['Idempotency-Key'],
    query: {
      limit: {
        description: 'Keys that are deleted at most. Default: 1000.',
        schema: ({ scanLimitMax }) => ({ type: 'integer', minimum: 1, maximum: scanLimitMax }),
      },
    },
    problems: ['key_locked', 'write_conflict', 'payload_too_large', 'idempotency_mismatch', 'ts_below_safe_point'],
    answers: { 200: { headers: ['Idempotency-Replayed'] } },
  },
  'POST /v1/kv/batch_get': {
    id: 'batchGet',
    tag: 'Keys',
    summary: 'Read many keys',
    description: 'Reads keys of one snapshot.',
    problems: ['key_locked', 'ts_below_safe_point'],
  },
}
