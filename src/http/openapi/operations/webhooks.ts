import type { Operations } from '../operation.js'
import { LIST_QUERY } from '../parameters.js'

const OFF = 'Where the server was started without `--webhook-targets`, every call of webhooks is 403.'

export const webhooks: Operations = {
  'GET /v1/webhooks': {
    id: 'listWebhooks',
    tag: 'Webhooks',
    summary: 'List the webhooks',
    description: OFF,
    query: LIST_QUERY,
  },
  'PUT /v1/webhooks/{name}': {
    id: 'putWebhook',
    tag: 'Webhooks',
    summary: 'Register a webhook',
    description: `The server POSTs to the URL what is committed in the range, in whole transactions and in their order, at least once, and signs it as [Standard Webhooks](https://www.standardwebhooks.com) says. The body is \`{"webhook", "txns"}\`, with transactions as [a page of the feed](#readChanges) has them; one above \`--page-bytes-max\` comes in parts, each with \`part\`, the last with \`is_last\`. An answer of 200 to 299 moves the position on. Any other is tried again, after 410 only when it is asked for; \`Retry-After\` of 429 and 503 counts for up to an hour. Redirects are not followed.

The position is that of the consumer \`webhook.{name}\`. Without \`prefix\`, \`start\` and \`end\` the range is every key, and stays so. A webhook that exists stays where it is; the options are replaced, and another \`url\` is tried at once. ${OFF}`,
    problems: ['already_exists', 'ts_below_safe_point'],
    answers: { 200: { description: 'It exists.' }, 201: { description: 'It is new.' } },
  },
  'GET /v1/webhooks/{name}': {
    id: 'readWebhook',
    tag: 'Webhooks',
    summary: 'State of a webhook',
    description: 'Its position, and why its last delivery has failed. The secret is not shown.',
    problems: ['not_found'],
  },
  'DELETE /v1/webhooks/{name}': {
    id: 'deleteWebhook',
    tag: 'Webhooks',
    summary: 'Delete a webhook',
    description: 'And its consumer. A request in flight may still arrive.',
    problems: ['not_found'],
  },
  'POST /v1/webhooks/{name}/retry': {
    id: 'retryWebhook',
    tag: 'Webhooks',
    summary: 'Try a batch again now',
    description: 'Whether it waits for its next attempt or is parked. Attempts begin at 0.',
    problems: ['not_found'],
  },
  'POST /v1/webhooks/{name}/skip': {
    id: 'skipWebhook',
    tag: 'Webhooks',
    summary: 'Give a batch up',
    description: 'Goes on after the batch that has failed, at its `failing_up_to`.',
    problems: ['not_found'],
  },
  'POST /v1/webhooks/{name}/reset': {
    id: 'resetWebhook',
    tag: 'Webhooks',
    summary: 'Set the position of a webhook',
    description: 'Up or down. Ends a gap.',
    problems: ['not_found', 'ts_below_safe_point'],
  },
}
