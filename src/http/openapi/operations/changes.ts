import type { Operations, Parameter } from '../operation.js'
import { LIST_QUERY } from '../parameters.js'

const LIMIT: Parameter = {
  description: 'Pages: transactions. Those of one `commit_ts` are never cut. Default: 100.',
  schema: { type: 'integer', minimum: 1, maximum: 10_000 },
}

const FORMS = `By \`Accept\`: \`application/json\` or \`application/msgpack\` is a page; \`text/event-stream\` and \`application/x-ndjson\` are streams. A stream begins with what was asked for and goes on until the client hangs up, unless \`wait_ms\` ends it. The \`id\` of an event is the timestamp up to which everything has been sent; in a snapshot \`s.<ts>.<last key, base64url>\`. A client that connects again with \`Last-Event-ID\` goes on there, whatever the query says, on pages too. What was answered before a page was asked for is in it, unless locks hold it back. A page has all parts of its transactions, however long they are, and counts each transaction once.

Locks of other transactions hold \`resolved_ts\` back: after 2 s \`feed.held_back_by\` of \`/v1/status\` names them. The server ends dead ones at most 5 s after their TTL.

A stream ends after an event \`error\`: on shutdown, below the safe point, when the storage fails, and when its token is taken away or narrowed. A client that is slow is sent the same, later; one that takes nothing for \`--stalled-ms-max\` is cut off. An open stream keeps what it has not read from collection, for up to \`--hold-ms-max\`. The token must reach the whole selection.

410 \`ts_below_safe_point\`: changes were collected. Its \`resync\`, and a header \`Link\` with \`rel="resync"\`, have the path that begins again with a snapshot. A feed never leaves anything out instead.`

export const changes: Operations = {
  'GET /v1/changes': {
    id: 'readChanges',
    tag: 'Change feed',
    summary: 'Read the change feed',
    description: `What is committed, in whole transactions, in the order of \`commit_ts\`. Each change of the selection with \`since_ts\` < \`commit_ts\` <= \`resolved_ts\` comes exactly once, and after \`resolved_ts\` nothing at or below it.

${FORMS}`,
    query: {
      limit: LIMIT,
      prefix: {
        description:
          'All keys that begin with one of these. 100 with those of `key`; does not go with `start` or `end`.',
        schema: { type: 'array', items: { type: 'string' }, maxItems: 100 },
      },
    },
    headers: ['Last-Event-ID'],
    problems: ['payload_too_large', 'ts_below_safe_point'],
    answers: { 200: { description: 'A page, or a stream.' } },
  },
  'GET /v1/consumers': {
    id: 'listConsumers',
    tag: 'Change feed',
    summary: 'List the consumers',
    description: 'Only those whose whole range the token reaches. Others look as if they did not exist.',
    query: LIST_QUERY,
  },
  'PUT /v1/consumers/{name}': {
    id: 'putConsumer',
    tag: 'Change feed',
    summary: 'Register a consumer',
    description: `A consumer is a name, a range and a position that the server keeps: everything at or below it is done. Without \`prefix\`, \`start\` and \`end\` its range is every key, and stays so. One that exists stays where it is, and gets the \`hold_ms\`. Once a collection has passed the position its feed is 410: begin again with \`snapshot\`, and reset it to the \`ts\` of the snapshot. Percolator's \`gc\` asks no consumer.`,
    problems: ['already_exists', 'ts_below_safe_point'],
    answers: { 200: { description: 'It exists.' }, 201: { description: 'It is new.' } },
  },
  'GET /v1/consumers/{name}': {
    id: 'readConsumer',
    tag: 'Change feed',
    summary: 'State of a consumer',
    description: 'Its range and position.',
    problems: ['not_found'],
  },
  'DELETE /v1/consumers/{name}': {
    id: 'deleteConsumer',
    tag: 'Change feed',
    summary: 'Delete a consumer',
    description: 'Its position holds nothing back any more.',
    problems: ['not_found'],
  },
  'GET /v1/consumers/{name}/changes': {
    id: 'readConsumerChanges',
    tag: 'Change feed',
    summary: 'Read the feed of a consumer',
    description: `The change feed of its range. It begins at the position, unless \`Last-Event-ID\`, \`since_ts\`, \`since_at\` or \`snapshot\` says otherwise. Reading moves no position.

${FORMS}`,
    query: { limit: LIMIT },
    headers: ['Last-Event-ID'],
    problems: ['not_found', 'ts_below_safe_point'],
    answers: { 200: { description: 'A page, or a stream.' } },
  },
  'POST /v1/consumers/{name}/ack': {
    id: 'acknowledgeChanges',
    tag: 'Change feed',
    summary: 'Move a position forward',
    description:
      'For effects outside of the database. For effects in it, move the position in [a transaction](#transact).',
    problems: ['not_found'],
  },
  'POST /v1/consumers/{name}/reset': {
    id: 'resetConsumer',
    tag: 'Change feed',
    summary: 'Set a position',
    description: 'Up or down.',
    problems: ['not_found', 'ts_below_safe_point'],
  },
}
